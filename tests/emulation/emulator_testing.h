#ifndef ATTND_TESTS_EMULATION_EMULATOR_TESTING_H_
#define ATTND_TESTS_EMULATION_EMULATOR_TESTING_H_

// Small kernels, run with some seeds each.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/wgmma.cuh"
#include "tests/emulation/launch.h"
#include "tests/emulation/shared_memory.h"

namespace attnd::emulation {

namespace ptx = cuda::sm90::ptx;

inline constexpr int kSeeds = 20;
inline constexpr uint32_t kMemory = SharedMemory::kBase;
inline constexpr size_t kBytes = 16 << 10;  // of shared memory
inline constexpr Grid kWarp{.threads = 32, .shared_bytes = kBytes};
inline constexpr Grid kWarpgroup{.threads = 128, .shared_bytes = kBytes};

// How many of the seeds fail, all with this message.
inline int Failures(const Grid& grid, const std::string& message,
                    const std::function<void()>& kernel) {
  int failures = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const absl::Status status = Launch(grid, seed, kernel);
    if (status.ok()) continue;
    ++failures;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(message));
  }
  return failures;
}

// With how many of them kernel() leaves what it should not in `result`.
template <class T>
int Wrong(const Grid& grid, const T& result, T expected,
          const std::function<void()>& kernel) {
  int wrong = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const absl::Status status = Launch(grid, seed, kernel);
    EXPECT_TRUE(status.ok()) << status;
    wrong += result != expected;
  }
  return wrong;
}

// A barrier that the first thread makes, in a block that sees it.
inline constexpr uint32_t kBarrier = kMemory;
inline void MakeBarrier(uint32_t arrivals) {
  if (threadIdx.x == 0) ptx::BarrierInit(kBarrier, arrivals);
  __syncthreads();
}

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_EMULATOR_TESTING_H_
