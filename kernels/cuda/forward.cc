#include "kernels/cuda/forward.h"

#include "kernels/cuda/baselines/flash_attention_1/flash_attention_1.h"
#include "kernels/cuda/baselines/naive/cublas.h"
#include "kernels/cuda/baselines/naive/naive.h"
#include "kernels/cuda/fused/forward.h"

namespace attnd::cuda {
namespace {

bool IsFused(Algorithm algorithm) {
  return algorithm == Algorithm::kAuto ||
         algorithm == Algorithm::kFlashAttention2;
}

absl::Status NoKernel() {
  return absl::UnimplementedError("no kernel for this algorithm on a GPU");
}

// The kernels that are kept to be compared merge with nothing.
absl::Status CheckAlgorithm(absl::Span<const ForwardArgs> group,
                            Algorithm algorithm) {
  if (IsFused(algorithm)) return absl::OkStatus();
  for (const ForwardArgs& args : group) {
    if (args.before.lse) {
      return absl::UnimplementedError(
          "no kernel for this algorithm on a GPU merges with results over "
          "other columns");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueForward(absl::Span<const ForwardArgs> group,
                                            Algorithm algorithm, const Gpu& gpu,
                                            Workspace& workspace) {
  absl::Status status = CheckAlgorithm(group, algorithm);
  if (!status.ok()) return status;
  switch (algorithm) {
    case Algorithm::kAuto:
    case Algorithm::kFlashAttention2:
      return EnqueueFused(group, gpu, workspace);
    case Algorithm::kNaive:
      return EnqueueNaive(group, workspace);
    case Algorithm::kFlashAttention1:
      return EnqueueFlashAttention1(group, workspace);
    case Algorithm::kOnlineSoftmax:
      break;
  }
  return NoKernel();
}

absl::StatusOr<std::unique_ptr<Rest>> BeginForward(
    absl::Span<const ForwardArgs> group, Algorithm algorithm, const Gpu& gpu,
    Workspace& workspace, const SliceOptions& slices) {
  absl::Status status = CheckAlgorithm(group, algorithm);
  if (!status.ok()) return status;
  switch (algorithm) {
    case Algorithm::kAuto:
    case Algorithm::kFlashAttention2:
      return BeginFused(group, gpu, workspace, slices);
    case Algorithm::kNaive:
      return BeginNaive(group, gpu, workspace, slices);
    case Algorithm::kFlashAttention1:
      return BeginFlashAttention1(group, gpu, workspace, slices);
    case Algorithm::kOnlineSoftmax:
      break;
  }
  return NoKernel();
}

absl::Status SupportsForward(const Problem&, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
    case Algorithm::kFlashAttention2:
    case Algorithm::kNaive:
    case Algorithm::kFlashAttention1:
      return absl::OkStatus();
    case Algorithm::kOnlineSoftmax:
      break;
  }
  return NoKernel();
}

KernelInfo ForwardKernel(const Problem& problem, Algorithm algorithm,
                         const Gpu& gpu) {
  if (algorithm == Algorithm::kNaive) {
    return {algorithm,
            Cublas::IsPresent() ? "cuda/naive/cublas" : "cuda/naive/tiled"};
  }
  if (algorithm == Algorithm::kFlashAttention1) {
    return {algorithm, "cuda/flash_attention_1"};
  }
  return FusedKernel(problem, gpu);
}

int64_t ForwardScratchBytes(const Problem& problem, Algorithm algorithm) {
  if (algorithm == Algorithm::kNaive) return NaiveScratchBytes(problem);
  if (algorithm == Algorithm::kFlashAttention1) {
    return FlashAttention1ScratchBytes(problem);
  }
  return FusedScratchBytes(problem);
}

}  // namespace attnd::cuda
