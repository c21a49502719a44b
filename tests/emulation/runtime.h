#ifndef ATTND_TESTS_EMULATION_RUNTIME_H_
#define ATTND_TESTS_EMULATION_RUNTIME_H_

// The CUDA runtime's launches, beside tests/kernels/cuda/fake_runtime.h: a
// kernel runs when its stream comes to it.

#include <cstdint>

#include "absl/status/status.h"

namespace attnd::emulation {

// What launches from now on draw from.
void SeedLaunches(uint64_t seed);

// What was wrong with the first launch that failed since the last call. Those
// after it have not run.
absl::Status TakeLaunchError();

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_RUNTIME_H_
