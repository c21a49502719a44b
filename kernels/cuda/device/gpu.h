#ifndef ATTND_KERNELS_CUDA_DEVICE_GPU_H_
#define ATTND_KERNELS_CUDA_DEVICE_GPU_H_

// Which GPUs there are, and which of them a thread talks to. Thread-safe.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace attnd::cuda {

// The least compute capability that kernels are built for, times ten.
inline constexpr int kLeastCapability = 80;
// That of Hopper, the only GPUs that have the instructions of sm90's kernels.
inline constexpr int kHopperCapability = 90;

// Indices of the GPUs that the kernels can run on, in order. NOT_FOUND, with
// the runtime's words, when there is no driver or no GPU; may be empty when all
// are too old.
absl::StatusOr<std::vector<int>> UsableDevices();

// Makes a device ready: describes it, and lets its pool keep `retained_bytes`
// of what is freed. NOT_FOUND: not there, or too old. INTERNAL: it is there and
// does not work.
absl::StatusOr<DeviceInfo> OpenDevice(int index, int64_t retained_bytes);

// Takes some memory of the device's pool and gives it back: the first that a
// process takes is some 10 to 20 ms late, which no request should wait for.
// That is so once more where the pool's memory is shared later (team/peers.h).
// Who needs memory is told if there is none.
void TakeFirstMemory(int index);

// What decides which kernels run on a device, and in which order their tiles
// come.
struct Gpu {
  int capability = 0;  // times ten: 90 is 9.0
  int multiprocessors = 0;
  int shared_bytes = 0;  // that a block of threads may have
  int cache_bytes = 0;   // of L2

  constexpr bool is_hopper() const { return capability == kHopperCapability; }
};
// The same GPU reported as 8.0, so that only sm80's kernels are chosen.
constexpr Gpu AsAnyGpu(Gpu gpu) {
  gpu.capability = kLeastCapability;
  return gpu;
}
absl::StatusOr<Gpu> DescribeGpu(int index);
// The same of the device that the calling thread talks to: for callers who are
// not told which it is.
absl::StatusOr<Gpu> CurrentGpu();

// What the calling thread does from now on concerns this device.
absl::Status UseDevice(int index);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_GPU_H_
