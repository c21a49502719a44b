#ifndef ATTND_KERNELS_CUDA_DEVICE_WORKSPACE_H_
#define ATTND_KERNELS_CUDA_DEVICE_WORKSPACE_H_

// The memory that launches on one CUDA stream need beside their tensors. It
// grows and stays, so that a warm stream allocates nothing; only scratch beyond
// a bound goes back to the device's pool once it has been used.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace attnd::cuda {

// For one thread at a time, with the stream's device current.
// RESOURCE_EXHAUSTED when there is no memory now.
class Workspace {
 public:
  // Scratch of more than `kept_bytes` goes back when it is recycled.
  explicit Workspace(cudaStream_t stream,
                     int64_t kept_bytes = int64_t{64} << 20)
      : stream_(stream), kept_bytes_(kept_bytes) {}
  // Everything enqueued on the stream must be over.
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  cudaStream_t stream() const { return stream_; }

  // Enqueues a copy of `block` to the device and returns where it will be for
  // what is enqueued from then until the next call. The host's side is copied
  // at once and then stays as it is until Recycle, so that a captured graph can
  // replay the copy.
  absl::StatusOr<const std::byte*> CopyToDevice(
      const std::vector<std::byte>& block);

  // Makes room for copies of blocks of these sizes, which CopyToDevice then
  // makes without memory of its own, until Recycle.
  absl::Status ReserveCopies(absl::Span<const int64_t> block_bytes);

  // Device memory for what is enqueued until the next call; undefined contents.
  absl::StatusOr<std::byte*> Scratch(int64_t bytes);

  // `count` counters, 0 to begin with. Whoever uses them leaves them 0.
  absl::StatusOr<uint32_t*> Counters(int64_t count);

  // What a library keeps for this stream, made by whoever needs it first; freed
  // with the workspace.
  std::shared_ptr<void>& library() { return library_; }

  // Everything enqueued so far is over.
  void Recycle();

  // Device memory held now.
  int64_t device_bytes() const;

 private:
  struct Buffer {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  absl::Status Grow(Buffer& buffer, int64_t bytes);
  absl::Status ReservePinned(int64_t bytes);

  const cudaStream_t stream_;
  const int64_t kept_bytes_;
  Buffer descriptors_, scratch_, counters_;
  std::list<Buffer> pinned_;  // the last one is being filled
  int64_t pinned_used_ = 0;   // of the last one
  std::shared_ptr<void> library_;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_WORKSPACE_H_
