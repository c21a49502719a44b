#ifndef ATTND_KERNELS_CUDA_DEVICE_ARENA_H_
#define ATTND_KERNELS_CUDA_DEVICE_ARENA_H_

// Device memory of one batch.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace attnd::cuda {

// Hands out memory in the order of asking, next to each other where it can, so
// that what is uploaded in that order goes in few copies. It comes from the
// pool of the current device, in chunks. For one thread at a time, with the
// stream's device current.
class DeviceArena {
 public:
  explicit DeviceArena(cudaStream_t stream) : stream_(stream) {}
  ~DeviceArena() { Reset(); }
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // For what is enqueued on the stream until Reset. Aligned to
  // kTensorAlignment, never null even for 0 bytes. RESOURCE_EXHAUSTED: no
  // memory now.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes);

  // Everything goes back to the pool once the stream has come to here.
  void Reset();

 private:
  const cudaStream_t stream_;
  std::vector<void*> chunks_;
  std::byte* next_ = nullptr;  // in the last chunk that is shared
  int64_t left_ = 0;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_ARENA_H_
