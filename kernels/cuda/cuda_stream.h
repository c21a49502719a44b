#ifndef ATTND_KERNELS_CUDA_CUDA_STREAM_H_
#define ATTND_KERNELS_CUDA_CUDA_STREAM_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/device/arena.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/marks.h"
#include "kernels/cuda/device/phase_clock.h"
#include "kernels/cuda/device/staging.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/rest.h"
#include "kernels/cuda/sliced_run.h"

namespace attnd::cuda {

// A CUDA stream with what its batches need: staging, tensors, workspace, marks
// and a clock. Every call may come from another thread, one at a time, and
// leaves the stream's device current there.
//
// No memory is RESOURCE_EXHAUSTED from Allocate, MapOutput, Forward and
// Backward, and the stream goes on. Any other error is INTERNAL: the device is
// broken. FAILED_PRECONDITION: there is a rest of a group that Proceed has not
// enqueued, and something else was to be; Wait and Reset give such a rest up.
class CudaStream : public Stream {
 public:
  // On the device of this index, which DescribeGpu found to be `gpu`.
  // RESOURCE_EXHAUSTED: no memory; INTERNAL: the device is broken.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(
      int device, const Gpu& gpu, const SliceOptions& slices = {});
  // Waits for all that was enqueued, or for the device to have given it up:
  // until then it may read and write what the stream owns.
  ~CudaStream() override;

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override;
  absl::StatusOr<std::byte*> MapOutput(HostSpan host) override;
  absl::Status Upload(absl::Span<const ConstHostSpan> from,
                      std::byte* to) override;
  absl::Status UploadPinned(ConstHostSpan from, std::byte* to) override;
  absl::Status Forward(absl::Span<const ForwardArgs> group,
                       const GroupOptions& options) override;
  absl::Status Backward(absl::Span<const BackwardArgs> group,
                        const GroupOptions& options) override;
  absl::StatusOr<double> Proceed(absl::FunctionRef<bool()> pause) override;
  absl::Status Download(const std::byte* from, HostSpan to) override;
  // `buffer` is of this stream's device.
  absl::Status Use(std::shared_ptr<DeviceBuffer> buffer) override;
  absl::StatusOr<int> Mark() override;
  absl::Status WaitFor(int mark) override;
  bool EndsWithin(absl::Duration time) override;
  absl::StatusOr<PhaseTimes> Wait() override;
  void Reset() override;

 private:
  // Gone last: everything else frees on it.
  class Handle {
   public:
    explicit Handle(cudaStream_t stream) : stream_(stream) {}
    ~Handle() { cudaStreamDestroy(stream_); }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    cudaStream_t get() const { return stream_; }

   private:
    const cudaStream_t stream_;
  };

  CudaStream(int device, const Gpu& gpu, const SliceOptions& slices,
             cudaStream_t stream);
  // What has been gathered for upload goes first, then `phase` begins.
  absl::Status Enter(PhaseClock::Phase phase);
  // What a group left of itself, or why it did not begin.
  absl::Status Begin(absl::StatusOr<std::unique_ptr<Rest>> rest);
  // Lets the buffers go once the stream has come to here.
  void LetGo();

  const int device_;
  const Gpu gpu_;
  const SliceOptions slices_;
  const Handle stream_;
  std::unique_ptr<Staging> staging_;
  DeviceArena inputs_, outputs_;        // each contiguous: see Staging::Copy
  std::optional<Workspace> workspace_;  // never empty
  PhaseClock clock_;
  SlicedRun run_;  // refers to the workspace
  Marks marks_;
  std::vector<std::shared_ptr<StreamBuffer>> used_;
  // Nothing has been enqueued since the last Wait, which found all done.
  bool idle_ = true;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_CUDA_STREAM_H_
