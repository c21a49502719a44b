#include "kernels/cuda/cuda_stream.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/backward.h"
#include "kernels/cuda/device/pinning.h"
#include "kernels/cuda/device/status.h"
#include "kernels/cuda/device/trace_range.h"
#include "kernels/cuda/forward.h"

namespace attnd::cuda {

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(
    int device, const Gpu& gpu, const SliceOptions& slices) {
  cudaStream_t handle = nullptr;
  absl::Status status = UseDevice(device);
  if (status.ok()) {
    status = ToStatus(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking),
                      "stream");
  }
  if (!status.ok()) return status;
  std::unique_ptr<CudaStream> stream(
      new CudaStream(device, gpu, slices, handle));
  absl::StatusOr<std::unique_ptr<Staging>> staging = Staging::Create(handle);
  if (!staging.ok()) return staging.status();
  stream->staging_ = *std::move(staging);
  return stream;
}

CudaStream::CudaStream(int device, const Gpu& gpu, const SliceOptions& slices,
                       cudaStream_t stream)
    : device_(device),
      gpu_(gpu),
      slices_(slices),
      stream_(stream),
      inputs_(stream),
      outputs_(stream),
      workspace_(stream),
      clock_(stream),
      run_(stream, slices),
      marks_(stream) {}

CudaStream::~CudaStream() {
  UseDevice(device_).IgnoreError();
  // An error says that the device runs nothing of this process any more.
  ToStatus(cudaStreamSynchronize(stream_.get()), "the device").IgnoreError();
}

absl::StatusOr<std::byte*> CudaStream::Allocate(int64_t bytes) {
  if (absl::Status status = UseDevice(device_); !status.ok()) return status;
  return inputs_.Allocate(bytes);
}

absl::StatusOr<std::byte*> CudaStream::MapOutput(HostSpan host) {
  if (absl::Status status = UseDevice(device_); !status.ok()) return status;
  return outputs_.Allocate(static_cast<int64_t>(host.size()));
}

absl::Status CudaStream::Upload(absl::Span<const ConstHostSpan> from,
                                std::byte* to) {
  int64_t bytes = 0;
  for (const ConstHostSpan& span : from) bytes += span.size();
  const TraceRange<trace::Upload> range(bytes);
  idle_ = false;
  absl::Status status = UseDevice(device_);
  if (status.ok()) status = clock_.Enter(&PhaseTimes::upload);
  if (status.ok()) status = staging_->Copy(from, to);
  return Broken(std::move(status));
}

// May overtake what has been gathered for upload, which is for other tensors
// and their padding: both are there before anything that comes with Enter.
absl::Status CudaStream::UploadPinned(ConstHostSpan from, std::byte* to) {
  const TraceRange<trace::Upload> range(from.size());
  idle_ = false;
  absl::Status status = UseDevice(device_);
  if (status.ok()) status = clock_.Enter(&PhaseTimes::upload);
  if (status.ok()) status = CopyToDevice(from, to, stream_.get());
  return Broken(std::move(status));
}

absl::Status CudaStream::Enter(PhaseClock::Phase phase) {
  if (run_.has_rest()) {
    return absl::FailedPreconditionError("a group is not enqueued to its end");
  }
  idle_ = false;
  absl::Status status = UseDevice(device_);
  if (status.ok()) status = staging_->Flush();
  if (status.ok()) status = clock_.Enter(phase);
  return Broken(std::move(status));
}

absl::Status CudaStream::Begin(absl::StatusOr<std::unique_ptr<Rest>> rest) {
  if (!rest.ok()) return rest.status();
  return Broken(run_.Begin(*std::move(rest)));
}

absl::Status CudaStream::Forward(absl::Span<const ForwardArgs> group,
                                 const GroupOptions& options) {
  const TraceRange<trace::Forward> range(group.size());
  absl::Status status = Enter(&PhaseTimes::compute);
  if (!status.ok()) return status;
  return Begin(
      BeginForward(group, options.algorithm, gpu_, *workspace_, slices_));
}

absl::Status CudaStream::Backward(absl::Span<const BackwardArgs> group,
                                  const GroupOptions& options) {
  const TraceRange<trace::Backward> range(group.size());
  absl::Status status = Enter(&PhaseTimes::compute);
  if (!status.ok()) return status;
  return Begin(BeginBackward(group, options, gpu_, *workspace_, slices_));
}

absl::StatusOr<double> CudaStream::Proceed(absl::FunctionRef<bool()> pause) {
  if (!run_.has_rest()) return 1.0;
  const TraceRange<trace::Slices> range;
  idle_ = false;
  absl::Status status = UseDevice(device_);
  if (status.ok()) status = clock_.Enter(&PhaseTimes::compute);
  if (!status.ok()) return Broken(std::move(status));
  absl::StatusOr<double> share = run_.Proceed(pause);
  if (!share.ok()) return Broken(share.status());
  // A pause is nobody's time.
  if (*share < 1) status = clock_.Enter(nullptr);
  if (!status.ok()) return Broken(std::move(status));
  return share;
}

absl::Status CudaStream::Download(const std::byte* from, HostSpan to) {
  const TraceRange<trace::Download> range(to.size());
  absl::Status status = Enter(&PhaseTimes::download);
  if (!status.ok()) return status;
  return CopyToHost(from, to, stream_.get());
}

absl::Status CudaStream::Use(std::shared_ptr<DeviceBuffer> buffer) {
  absl::Status status = UseDevice(device_);
  if (!status.ok()) return Broken(std::move(status));
  auto used = std::static_pointer_cast<StreamBuffer>(std::move(buffer));
  status = used->JoinTo(stream_.get());
  // A request's tensors mostly lie in one; Reset lets it go once.
  if (std::find(used_.begin(), used_.end(), used) == used_.end()) {
    used_.push_back(std::move(used));
  }
  return status;
}

absl::StatusOr<int> CudaStream::Mark() {
  absl::Status status = UseDevice(device_);
  if (status.ok()) status = staging_->Flush();
  if (!status.ok()) return Broken(std::move(status));
  absl::StatusOr<int> mark = marks_.Add();
  if (!mark.ok()) return Broken(mark.status());
  return mark;
}

absl::Status CudaStream::WaitFor(int mark) {
  absl::Status status = UseDevice(device_);
  if (status.ok()) status = marks_.WaitFor(mark);
  return Broken(std::move(status));
}

bool CudaStream::EndsWithin(absl::Duration time) {
  if (!UseDevice(device_).ok() || !staging_->Flush().ok()) return true;
  return clock_.EndsWithin(time);
}

absl::StatusOr<PhaseTimes> CudaStream::Wait() {
  const TraceRange<trace::Wait> range;
  run_.Drop();  // its memory is about to go
  absl::Status status = UseDevice(device_);
  if (status.ok()) status = staging_->Flush();
  if (!status.ok()) return Broken(std::move(status));
  absl::StatusOr<PhaseTimes> times = clock_.Finish();
  if (!times.ok()) return Broken(times.status());
  staging_->Rewind();
  workspace_->Recycle();
  idle_ = true;
  return times;
}

void CudaStream::Reset() {
  UseDevice(device_).IgnoreError();
  run_.Drop();
  LetGo();
  marks_.Clear();
  inputs_.Reset();
  outputs_.Reset();
}

// Where the device is broken nothing runs on it any more.
void CudaStream::LetGo() {
  if (used_.empty()) return;
  if (idle_) return used_.clear();
  if (const absl::StatusOr<int> end = marks_.Add(); end.ok()) {
    for (const std::shared_ptr<StreamBuffer>& buffer : used_) {
      buffer->Release(marks_.event(*end)).IgnoreError();
    }
  }
  used_.clear();
}

}  // namespace attnd::cuda
