#include "kernels/cuda/cuda_backend.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "kernels/cuda/backward.h"
#include "kernels/cuda/cuda_member.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/imported_buffer.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "kernels/cuda/device/pinning.h"
#include "kernels/cuda/device/usage.h"
#include "kernels/cuda/forward.h"
#include "kernels/cuda/fused/forward.h"
#include "kernels/cuda/rates.h"
#include "kernels/cuda/team/peers.h"
#include "kernels/reference/reference.h"

namespace attnd {
namespace {

class CudaBackend : public Backend {
 public:
  CudaBackend(DeviceInfo device, const cuda::Gpu& gpu,
              int64_t retained_pinned_bytes)
      : device_(std::move(device)),
        gpu_(gpu),
        host_memory_(std::make_shared<cuda::PinnedMemory>(
            device_.index, retained_pinned_bytes)) {}

  const DeviceInfo& device() const override { return device_; }
  std::shared_ptr<HostMemory> host_memory() override { return host_memory_; }
  std::optional<DeviceUsage> Usage() const override {
    return cuda::UsageOf(device_.index);
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return cuda::CudaStream::Create(device_.index, gpu_);
  }
  absl::StatusOr<std::unique_ptr<MemberStream>> NewMemberStream() override {
    return cuda::CudaMember::Create(device_.index, gpu_);
  }

  absl::StatusOr<std::shared_ptr<DeviceBuffer>> NewBuffer(
      int64_t bytes) override {
    absl::StatusOr<std::shared_ptr<cuda::Landing>> landing = SharedLanding();
    if (!landing.ok()) return landing.status();
    return cuda::CudaBuffer::Create(*std::move(landing), bytes);
  }

  absl::Status Pin(HostSpan memory) override {
    return cuda::PinMemory(device_.index, memory);
  }
  void Unpin(HostSpan memory) override {
    cuda::UnpinMemory(device_.index, memory);
  }
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> Import(int fd,
                                                       int64_t bytes) override {
    absl::StatusOr<std::shared_ptr<cuda::Landing>> landing = SharedLanding();
    if (!landing.ok()) return landing.status();
    return cuda::ImportedBuffer::Create(*std::move(landing), fd, bytes);
  }

  absl::Status Supports(Op op, const Problem& problem,
                        const GroupOptions& options) const override {
    return op == Op::kForward
               ? cuda::SupportsForward(problem, options.algorithm)
               : cuda::SupportsBackward(problem, options.algorithm);
  }

  KernelInfo Kernel(Op op, const Problem& problem,
                    const GroupOptions& options) const override {
    return op == Op::kForward
               ? cuda::ForwardKernel(problem, options.algorithm, gpu_)
               : cuda::BackwardKernel(problem, options, gpu_);
  }

  int64_t ScratchBytes(Op op, const Problem& problem,
                       const GroupOptions& options) const override {
    return op == Op::kForward
               ? cuda::ForwardScratchBytes(problem, options.algorithm)
               : cuda::BackwardScratchBytes(problem, options.algorithm);
  }

  double CostFlops(Op op, const Problem& problem,
                   const GroupOptions& options) const override {
    return Slowdown(options.algorithm) *
           reference::VisitedFlops(op, problem, options.algorithm);
  }

  DeviceRates Rates() const override { return cuda::NominalRates(gpu_); }

  CutUnit Cut(const Problem& sequence, const GroupOptions&) const override {
    return cuda::FusedCut(sequence, gpu_);
  }

 private:
  // What all buffers share, made for the first one.
  absl::StatusOr<std::shared_ptr<cuda::Landing>> SharedLanding() {
    const MutexLock lock(mutex_);
    if (landing_ == nullptr) {
      auto landing = cuda::Landing::Create(device_.index);
      if (!landing.ok()) return landing.status();
      landing_ = *std::move(landing);
    }
    return landing_;
  }

  // How much longer than the fused kernels an algorithm takes for a pair that
  // it visits, roughly: the papers' own figures.
  static double Slowdown(Algorithm algorithm) {
    switch (algorithm) {
      case Algorithm::kAuto:
      case Algorithm::kFlashAttention2:
        return 1;
      case Algorithm::kNaive:
        return 8;
      case Algorithm::kOnlineSoftmax:
      case Algorithm::kFlashAttention1:
        return 20;
    }
    return 1;
  }

  const DeviceInfo device_;
  const cuda::Gpu gpu_;
  const std::shared_ptr<cuda::PinnedMemory> host_memory_;
  Mutex mutex_;
  std::shared_ptr<cuda::Landing> landing_ ABSL_GUARDED_BY(mutex_);
};

// Which devices `options` ask for.
absl::StatusOr<std::vector<int>> Chosen(const CudaOptions& options) {
  if (!options.devices.empty()) return options.devices;
  absl::StatusOr<std::vector<int>> usable = cuda::UsableDevices();
  if (usable.ok() && usable->empty()) {
    return absl::NotFoundError(
        "no GPU of compute capability 8.0 or later is here");
  }
  return usable;
}

}  // namespace

int CudaDeviceCount() {
  const absl::StatusOr<std::vector<int>> usable = cuda::UsableDevices();
  return usable.ok() ? static_cast<int>(usable->size()) : 0;
}

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateCudaBackends(
    const CudaOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  absl::StatusOr<std::vector<int>> chosen = Chosen(options);
  if (!chosen.ok()) return chosen.status();
  std::vector<std::unique_ptr<Backend>> backends;
  for (int index : *chosen) {
    absl::StatusOr<DeviceInfo> device =
        cuda::OpenDevice(index, options.retained_bytes);
    if (!device.ok()) return device.status();
    absl::StatusOr<cuda::Gpu> gpu = cuda::DescribeGpu(index);
    if (!gpu.ok()) return gpu.status();
    backends.push_back(std::make_unique<CudaBackend>(
        *std::move(device), *gpu, options.retained_pinned_bytes));
  }
  for (int index : *chosen) {
    if (chosen->size() > 1) cuda::ShareMemory(index);
    cuda::TakeFirstMemory(index);
  }
  return backends;
}

}  // namespace attnd
