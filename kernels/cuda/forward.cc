#include "kernels/cuda/forward.h"

#include "kernels/cuda/sm80/forward.h"

namespace attnd::cuda {

absl::StatusOr<LaunchCounts> EnqueueForward(absl::Span<const ForwardArgs> group,
                                            Algorithm algorithm,
                                            Workspace& workspace) {
  switch (algorithm) {
    case Algorithm::kAuto:
    case Algorithm::kFlashAttention2:
      return sm80::EnqueueForward(group, workspace);
    case Algorithm::kNaive:
    case Algorithm::kOnlineSoftmax:
    case Algorithm::kFlashAttention1:
      break;
  }
  return absl::UnimplementedError("no kernel for this algorithm on a GPU");
}

absl::Status SupportsForward(const Problem&, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
    case Algorithm::kFlashAttention2:
      return absl::OkStatus();
    case Algorithm::kNaive:
    case Algorithm::kOnlineSoftmax:
    case Algorithm::kFlashAttention1:
      break;
  }
  return absl::UnimplementedError("no kernel for this algorithm on a GPU");
}

KernelInfo ForwardKernel(const Problem& problem, Algorithm) {
  return sm80::ForwardKernel(problem);
}

int64_t ForwardScratchBytes(const Problem& problem, Algorithm) {
  return sm80::ForwardScratchBytes(problem);
}

}  // namespace attnd::cuda
