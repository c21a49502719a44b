#include "kernels/cuda/backward.h"

#include "kernels/cuda/fused_backward.h"

namespace attnd::cuda {

absl::StatusOr<LaunchCounts> EnqueueBackward(
    absl::Span<const BackwardArgs> group, const GroupOptions& options,
    Workspace& workspace) {
  switch (options.algorithm) {
    case Algorithm::kAuto:
    case Algorithm::kFlashAttention2:
      return EnqueueFusedBackward(
          group, {.deterministic = options.deterministic}, workspace);
    case Algorithm::kNaive:
    case Algorithm::kFlashAttention1:
    case Algorithm::kOnlineSoftmax:
      break;
  }
  return absl::UnimplementedError(
      "no kernel for backward by this algorithm on a GPU");
}

absl::Status SupportsBackward(const Problem&, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
    case Algorithm::kFlashAttention2:
      return absl::OkStatus();
    case Algorithm::kNaive:
    case Algorithm::kFlashAttention1:
    case Algorithm::kOnlineSoftmax:
      break;
  }
  return absl::UnimplementedError(
      "no kernel for backward by this algorithm on a GPU");
}

KernelInfo BackwardKernel(const Problem& problem, const GroupOptions&,
                          const Gpu& gpu) {
  return FusedBackwardKernel(problem, gpu);
}

int64_t BackwardScratchBytes(const Problem& problem, Algorithm) {
  return FusedBackwardScratchBytes(problem);
}

}  // namespace attnd::cuda
