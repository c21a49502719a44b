#include "kernels/cuda/backward.h"

#include <algorithm>

#include "kernels/cuda/baselines/naive/cublas.h"
#include "kernels/cuda/baselines/naive/naive_backward.h"
#include "kernels/cuda/fused/backward.h"

namespace attnd::cuda {
namespace {

absl::Status NoKernel() {
  return absl::UnimplementedError(
      "no kernel for backward by this algorithm on a GPU");
}

// The kernels that are kept to be compared add to nothing.
absl::Status CheckAlgorithm(absl::Span<const BackwardArgs> group,
                            Algorithm algorithm) {
  if (algorithm != Algorithm::kNaive) return absl::OkStatus();
  const auto adds = [](const KvSegment& s) {
    return s.dk_before || s.dv_before;
  };
  for (const BackwardArgs& args : group) {
    const absl::Span<const KvSegment> kv = args.problem.kv;
    if (args.dq_before || std::any_of(kv.begin(), kv.end(), adds)) {
      return absl::UnimplementedError(
          "no kernel for this algorithm on a GPU adds to gradients that were "
          "there before");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueBackward(
    absl::Span<const BackwardArgs> group, const GroupOptions& options,
    const Gpu& gpu, Workspace& workspace) {
  absl::Status status = CheckAlgorithm(group, options.algorithm);
  if (!status.ok()) return status;
  switch (options.algorithm) {
    case Algorithm::kAuto:
    case Algorithm::kFlashAttention2:
      return EnqueueFusedBackward(group, gpu, workspace,
                                  {.deterministic = options.deterministic});
    case Algorithm::kNaive:
      return EnqueueNaiveBackward(group, workspace,
                                  {.deterministic = options.deterministic});
    case Algorithm::kFlashAttention1:
    case Algorithm::kOnlineSoftmax:
      break;
  }
  return NoKernel();
}

absl::StatusOr<std::unique_ptr<Rest>> BeginBackward(
    absl::Span<const BackwardArgs> group, const GroupOptions& options,
    const Gpu& gpu, Workspace& workspace, const SliceOptions& slices) {
  absl::Status status = CheckAlgorithm(group, options.algorithm);
  if (!status.ok()) return status;
  switch (options.algorithm) {
    case Algorithm::kAuto:
    case Algorithm::kFlashAttention2:
      return BeginFusedBackward(group, gpu, workspace, slices,
                                {.deterministic = options.deterministic});
    case Algorithm::kNaive:
      return BeginNaiveBackward(group, gpu, workspace, slices,
                                {.deterministic = options.deterministic});
    case Algorithm::kFlashAttention1:
    case Algorithm::kOnlineSoftmax:
      break;
  }
  return NoKernel();
}

absl::Status SupportsBackward(const Problem&, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
    case Algorithm::kFlashAttention2:
    case Algorithm::kNaive:
      return absl::OkStatus();
    case Algorithm::kFlashAttention1:
    case Algorithm::kOnlineSoftmax:
      break;
  }
  return NoKernel();
}

KernelInfo BackwardKernel(const Problem& problem, const GroupOptions& options,
                          const Gpu& gpu) {
  if (options.algorithm == Algorithm::kNaive) {
    const bool cublas = !options.deterministic && Cublas::IsPresent();
    return {options.algorithm,
            cublas ? "cuda/naive/cublas" : "cuda/naive/tiled"};
  }
  return FusedBackwardKernel(problem, gpu);
}

int64_t BackwardScratchBytes(const Problem& problem, Algorithm algorithm) {
  if (algorithm == Algorithm::kNaive) {
    return NaiveBackwardScratchBytes(problem, NaiveOrder::kMathematical);
  }
  return FusedBackwardScratchBytes(problem);
}

}  // namespace attnd::cuda
