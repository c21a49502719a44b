#include "tests/emulation/emulated_gpu.h"

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/cuda/device/status.h"
#include "kernels/cuda/fused/backward.h"
#include "kernels/cuda/fused/forward.h"
#include "tests/emulation/runtime.h"

namespace attnd::emulation {

EmulatedGpu::EmulatedGpu(const cuda::Gpu& gpu, uint64_t seed) : gpu_(gpu) {
  SeedLaunches(seed);
  cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  workspace_ = std::make_unique<cuda::Workspace>(stream_);
}

EmulatedGpu::~EmulatedGpu() {
  workspace_ = nullptr;
  cudaStreamDestroy(stream_);
}

absl::Status EmulatedGpu::Forward(absl::Span<const ForwardArgs> group) {
  if (absl::Status status = Poison(group); !status.ok()) return status;
  return Wait(cuda::EnqueueFused(group, gpu_, *workspace_).status());
}

absl::Status EmulatedGpu::Backward(absl::Span<const BackwardArgs> group,
                                   bool deterministic) {
  if (absl::Status status = Poison(group); !status.ok()) return status;
  return Wait(cuda::EnqueueFusedBackward(group, gpu_, *workspace_,
                                         {.deterministic = deterministic})
                  .status());
}

absl::StatusOr<int> EmulatedGpu::ForwardInSlices(
    absl::Span<const ForwardArgs> group, const cuda::SliceOptions& slices) {
  if (absl::Status status = Poison(group); !status.ok()) return status;
  return RunSlices(cuda::BeginFused(group, gpu_, *workspace_, slices));
}

absl::StatusOr<int> EmulatedGpu::BackwardInSlices(
    absl::Span<const BackwardArgs> group, bool deterministic,
    const cuda::SliceOptions& slices) {
  if (absl::Status status = Poison(group); !status.ok()) return status;
  return RunSlices(cuda::BeginFusedBackward(group, gpu_, *workspace_, slices,
                                            {.deterministic = deterministic}));
}

absl::StatusOr<int> EmulatedGpu::RunSlices(
    absl::StatusOr<std::unique_ptr<cuda::Rest>> rest) {
  absl::Status status = rest.status();
  int slices = 1;
  while (status.ok() && *rest != nullptr) {
    status = cuda::ToStatus(cudaStreamSynchronize(stream_), "running");
    if (!status.ok()) break;
    status = (*rest)->EnqueueSlice();
    ++slices;
    if ((*rest)->share() >= 1) *rest = nullptr;
  }
  status = Wait(status);
  if (!status.ok()) return status;
  return slices;
}

absl::Status EmulatedGpu::Poison(absl::Span<const ForwardArgs> group) {
  int64_t bytes = 0;
  for (const ForwardArgs& args : group) {
    bytes += cuda::FusedScratchBytes(args.problem);
  }
  return Poison(bytes);
}

absl::Status EmulatedGpu::Poison(absl::Span<const BackwardArgs> group) {
  int64_t bytes = 0;
  for (const BackwardArgs& args : group) {
    bytes += cuda::FusedBackwardScratchBytes(args.problem);
  }
  return Poison(bytes);
}

absl::Status EmulatedGpu::Poison(int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const absl::StatusOr<std::byte*> scratch = workspace_->Scratch(bytes);
  if (!scratch.ok()) return scratch.status();
  return cuda::ToStatus(cudaMemsetAsync(*scratch, 0xff, bytes, stream_),
                        "poisoning scratch");
}

absl::Status EmulatedGpu::Wait(const absl::Status& enqueued) {
  absl::Status run = cuda::ToStatus(cudaStreamSynchronize(stream_), "running");
  workspace_->Recycle();
  absl::Status error = TakeLaunchError();
  if (!error.ok()) return error;
  return enqueued.ok() ? run : enqueued;
}

}  // namespace attnd::emulation
