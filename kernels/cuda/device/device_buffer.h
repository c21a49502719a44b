#ifndef ATTND_KERNELS_CUDA_DEVICE_DEVICE_BUFFER_H_
#define ATTND_KERNELS_CUDA_DEVICE_DEVICE_BUFFER_H_

// Device memory of no stream, which any thread fills: what requests bring lands
// in a few pinned blocks that a device's buffers share, and goes on from there.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kernels/backend.h"

namespace attnd::cuda {

// A ring of pinned blocks with a CUDA stream for the copies from them, and one
// for what is freed. Thread-safe. Every error but that of Create means that the
// device is broken.
class Landing {
 public:
  static constexpr int64_t kBlockBytes = int64_t{1} << 20;
  static constexpr int kBlocks = 8;

  // RESOURCE_EXHAUSTED: no memory to pin; INTERNAL: the device is broken.
  static absl::StatusOr<std::unique_ptr<Landing>> Create(int device);
  // Waits for the copies that are under way. No thread may be in another call.
  ~Landing();
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

  int device() const { return device_; }
  // In its order buffers are allocated and written.
  cudaStream_t copies() const { return copies_; }
  // In its order they are freed: it may have to wait for long kernels.
  cudaStream_t frees() const { return frees_; }

  // Copies `from`, one span after another, to `to` on the device. A block is
  // held while bytes are copied into it, outside of the lock, and until the
  // device has read them; waits where all blocks are.
  absl::Status Copy(absl::Span<const ConstHostSpan> from, std::byte* to);

 private:
  struct Block {
    std::byte* data = nullptr;   // kBlockBytes, pinned
    cudaEvent_t read = nullptr;  // the device has read what was copied last
    bool used = false;           // whether there was anything
  };

  explicit Landing(int device) : device_(device) {}
  absl::Status Allocate();
  // The block that was given back longest ago, once the device has read it.
  absl::StatusOr<Block*> Take() ABSL_LOCKS_EXCLUDED(mutex_);
  void GiveBack(Block* block) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Enqueue(Block& block, int64_t bytes, std::byte* to);

  const int device_;
  cudaStream_t copies_ = nullptr, frees_ = nullptr;
  std::byte* memory_ = nullptr;
  std::array<Block, kBlocks> blocks_;
  Mutex mutex_;
  Condition given_back_;
  std::deque<Block*> idle_ ABSL_GUARDED_BY(mutex_);  // and those being read
};

// A DeviceBuffer, and what a stream of its device does with it. Thread-safe. An
// error means that the device is broken.
class StreamBuffer : public DeviceBuffer {
 public:
  // What is enqueued on `stream` from now on comes after what has been written.
  virtual absl::Status JoinTo(cudaStream_t stream) const = 0;
  // The memory is needed until `event`, the end of what a stream does with it.
  virtual absl::Status Release(cudaEvent_t event) const = 0;
};

// Memory of this process. Goes back to the device's pool once all that streams
// enqueued before Release is over.
class CudaBuffer final : public StreamBuffer {
 public:
  // RESOURCE_EXHAUSTED: no memory now; INTERNAL: the device is broken.
  static absl::StatusOr<std::shared_ptr<CudaBuffer>> Create(
      std::shared_ptr<Landing> landing, int64_t bytes);
  ~CudaBuffer() override;

  std::byte* data() const override { return memory_; }
  absl::Status Write(int64_t offset,
                     absl::Span<const ConstHostSpan> from) override;

  absl::Status JoinTo(cudaStream_t stream) const override;
  absl::Status Release(cudaEvent_t event) const override;

 private:
  explicit CudaBuffer(std::shared_ptr<Landing> landing)
      : landing_(std::move(landing)) {}

  const std::shared_ptr<Landing> landing_;
  std::byte* memory_ = nullptr;
  cudaEvent_t written_ = nullptr;  // behind the last of its copies
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_DEVICE_BUFFER_H_
