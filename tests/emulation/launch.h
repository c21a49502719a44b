#ifndef ATTND_TESTS_EMULATION_LAUNCH_H_
#define ATTND_TESTS_EMULATION_LAUNCH_H_

// Runs a kernel on the CPU as a GPU might: some blocks are resident at a time,
// warps go on in any order, and what is asynchronous happens soon or late.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace attnd::emulation {

struct Grid {
  unsigned blocks = 1;
  unsigned threads = 32;    // of a block, a multiple of 32
  size_t shared_bytes = 0;  // dynamic, of a block
  unsigned cluster = 1;     // blocks that are resident together
};

// Runs kernel() in every thread. The same seed always gives the same order of
// events. INTERNAL, and says what was wrong, where the kernel breaks a rule of
// the hardware's or does not end. For one thread of the host at a time.
//
// Kernels without dynamic shared memory may have static: their blocks run one
// after another.
absl::Status Launch(const Grid& grid, uint64_t seed,
                    const std::function<void()>& kernel);

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_LAUNCH_H_
