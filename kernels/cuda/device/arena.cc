#include "kernels/cuda/device/arena.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// What small tensors share.
constexpr int64_t kChunkBytes = int64_t{1} << 20;
// At the end of each chunk, unused: what comes next in memory must not look as
// if it were of the same chunk, since no copy may reach from one into another.
constexpr int64_t kGapBytes = kTensorAlignment;
// Beyond any device: what the runtime would call a mistake, not a shortage.
constexpr int64_t kMostBytes = int64_t{1} << 44;

}  // namespace

absl::StatusOr<std::byte*> DeviceArena::Allocate(int64_t bytes) {
  if (bytes > kMostBytes) {
    return absl::ResourceExhaustedError("more than any device has");
  }
  bytes = std::max<int64_t>(bytes, 1);
  bytes = (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
  if (bytes > left_) {
    const int64_t chunk = std::max(bytes + kGapBytes, kChunkBytes);
    void* memory = nullptr;
    absl::Status status =
        ToStatus(cudaMallocAsync(&memory, chunk, stream_),
                 absl::StrCat(chunk, " bytes of device memory"));
    if (!status.ok()) return status;
    chunks_.push_back(memory);
    // A large tensor has a chunk to itself: the rest of the last one stays.
    if (chunk > kChunkBytes) return static_cast<std::byte*>(memory);
    next_ = static_cast<std::byte*>(memory);
    left_ = chunk - kGapBytes;
  }
  std::byte* memory = next_;
  next_ += bytes;
  left_ -= bytes;
  return memory;
}

void DeviceArena::Reset() {
  for (void* chunk : chunks_) {
    ToStatus(cudaFreeAsync(chunk, stream_), "freeing").IgnoreError();
  }
  chunks_.clear();
  next_ = nullptr;
  left_ = 0;
}

}  // namespace attnd::cuda
