#ifndef ATTND_TESTS_KERNELS_CUDA_FAKE_LAUNCH_H_
#define ATTND_TESTS_KERNELS_CUDA_FAKE_LAUNCH_H_

// Launches, beside fake_runtime.h: they are remembered, and nothing runs.

#include <vector>

namespace attnd::testing {

struct FakeLaunch {
  const void* kernel = nullptr;  // its function
  unsigned blocks = 0;           // of threads
};
// All since the last call, in order.
std::vector<FakeLaunch> TakeFakeLaunches();

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_FAKE_LAUNCH_H_
