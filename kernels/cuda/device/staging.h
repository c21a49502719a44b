#ifndef ATTND_KERNELS_CUDA_DEVICE_STAGING_H_
#define ATTND_KERNELS_CUDA_DEVICE_STAGING_H_

// The way from any host memory to the device: through a ring of pinned blocks,
// so that the next block is filled while the last one is on the bus.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"

namespace attnd::cuda {

// For one thread at a time, with the stream's device current. Every error means
// that the device is broken.
class Staging {
 public:
  static constexpr int64_t kBlockBytes = int64_t{1} << 20;
  static constexpr int kBlocks = 8;

  // RESOURCE_EXHAUSTED: no memory to pin.
  static absl::StatusOr<std::unique_ptr<Staging>> Create(cudaStream_t stream);
  // Everything enqueued on the stream must be over.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Gathers `from` for `to`; the spans may go once it returns. What is
  // contiguous on the device goes in one copy, also over several calls: many
  // tiny tensors cost one. Tensors start at kTensorAlignment, so bytes from a
  // tensor's end to there may be overwritten. Waits only for a block that is
  // still on its way.
  absl::Status Copy(absl::Span<const ConstHostSpan> from, std::byte* to);

  // Enqueues what has been gathered.
  absl::Status Flush();

  // Everything enqueued so far is over.
  void Rewind();

 private:
  struct Block {
    std::byte* data = nullptr;   // kBlockBytes, pinned
    cudaEvent_t read = nullptr;  // recorded once the block is full
    bool under_way = false;
  };
  // What has been gathered: the last `bytes` of what is used of the block.
  struct Pending {
    std::byte* to = nullptr;
    int64_t bytes = 0;
  };

  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  absl::Status Allocate();
  absl::Status NextBlock();
  int64_t Gap(const std::byte* to) const;
  bool Joins(const std::byte* to) const;

  const cudaStream_t stream_;
  std::byte* memory_ = nullptr;
  std::array<Block, kBlocks> blocks_;
  int current_ = 0;
  int64_t used_ = 0;  // of the current block
  Pending pending_;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_STAGING_H_
