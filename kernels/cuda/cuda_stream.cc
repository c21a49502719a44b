#include "kernels/cuda/cuda_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/backward.h"
#include "kernels/cuda/device/status.h"
#include "kernels/cuda/forward.h"

namespace attnd::cuda {
namespace {

// For calls that ask for no memory of their own: if one fails for want of it,
// the stream is no longer in a known state.
absl::Status Broken(absl::Status status) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::InternalError(status.message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(int device,
                                                               const Gpu& gpu) {
  cudaStream_t handle = nullptr;
  absl::Status status = UseDevice(device);
  if (status.ok()) {
    status = ToStatus(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking),
                      "stream");
  }
  if (!status.ok()) return status;
  std::unique_ptr<CudaStream> stream(new CudaStream(device, gpu, handle));
  absl::StatusOr<std::unique_ptr<Staging>> staging = Staging::Create(handle);
  if (!staging.ok()) return staging.status();
  stream->staging_ = *std::move(staging);
  return stream;
}

CudaStream::CudaStream(int device, const Gpu& gpu, cudaStream_t stream)
    : device_(device),
      gpu_(gpu),
      stream_(stream),
      inputs_(stream),
      outputs_(stream),
      workspace_(stream),
      clock_(stream) {}

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
  absl::Status status = UseDevice(device_);
  if (status.ok()) status = clock_.Enter(&PhaseTimes::upload);
  if (status.ok()) status = staging_->Copy(from, to);
  return Broken(std::move(status));
}

absl::Status CudaStream::Enter(PhaseClock::Phase phase) {
  absl::Status status = UseDevice(device_);
  if (status.ok()) status = staging_->Flush();
  if (status.ok()) status = clock_.Enter(phase);
  return Broken(std::move(status));
}

absl::Status CudaStream::Forward(absl::Span<const ForwardArgs> group,
                                 const GroupOptions& options) {
  absl::Status status = Enter(&PhaseTimes::compute);
  if (!status.ok()) return status;
  return EnqueueForward(group, options.algorithm, gpu_, *workspace_).status();
}

absl::Status CudaStream::Backward(absl::Span<const BackwardArgs> group,
                                  const GroupOptions& options) {
  absl::Status status = Enter(&PhaseTimes::compute);
  if (!status.ok()) return status;
  return EnqueueBackward(group, options, gpu_, *workspace_).status();
}

absl::Status CudaStream::Download(const std::byte* from, HostSpan to) {
  absl::Status status = Enter(&PhaseTimes::download);
  if (!status.ok() || to.empty()) return status;
  return Broken(ToStatus(cudaMemcpyAsync(to.data(), from, to.size(),
                                         cudaMemcpyDeviceToHost, stream_.get()),
                         "download"));
}

absl::StatusOr<PhaseTimes> CudaStream::Wait() {
  absl::Status status = UseDevice(device_);
  if (status.ok()) status = staging_->Flush();
  if (!status.ok()) return Broken(std::move(status));
  absl::StatusOr<PhaseTimes> times = clock_.Finish();
  if (!times.ok()) return Broken(times.status());
  staging_->Rewind();
  workspace_->Recycle();
  return times;
}

void CudaStream::Reset() {
  UseDevice(device_).IgnoreError();
  inputs_.Reset();
  outputs_.Reset();
}

}  // namespace attnd::cuda
