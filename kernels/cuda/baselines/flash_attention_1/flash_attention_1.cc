#include "kernels/cuda/baselines/flash_attention_1/flash_attention_1.h"

#include "kernels/cuda/baselines/baseline.h"
#include "kernels/cuda/baselines/flash_attention_1/launch.h"
#include "kernels/cuda/device/status.h"
#include "kernels/cuda/launch/wanted.h"

namespace attnd::cuda {
namespace {

// Cuts `scratch` into the problem's state.
FlashAttention1State Place(const ForwardArgs& args, BlobOffset problem,
                           std::byte* scratch) {
  const Problem& p = args.problem;
  const int64_t rows = p.batch * p.q_heads * p.q_len;
  FlashAttention1State state;
  state.problem = problem;
  float* floats = reinterpret_cast<float*>(scratch);
  if (args.o && args.o.dtype != DType::kF32) {
    state.o = floats;
    floats += rows * p.value_dim;
  }
  state.m = floats;
  state.l = floats + rows;
  return state;
}

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueFlashAttention1(
    absl::Span<const ForwardArgs> group, Workspace& workspace) {
  LaunchCounts counts;
  BaselineGroup placed;
  absl::Status status = PlaceBaselineGroup(group, FlashAttention1ScratchBytes,
                                           workspace, placed, counts);
  for (size_t n = 0; n < group.size() && status.ok(); ++n) {
    if (!IsWanted(group[n])) continue;
    const FlashAttention1State state =
        Place(group[n], placed.problems[n], placed.scratch);
    status =
        ToStatus(LaunchFlashAttention1(placed.params, state, group[n].problem,
                                       workspace.stream()),
                 "FlashAttention-1");
    ++counts.kernels;
  }
  if (!status.ok()) return status;
  return counts;
}

int64_t FlashAttention1ScratchBytes(const Problem& p) {
  // In double, so that nothing overflows.
  const double rows = static_cast<double>(p.batch) *
                      static_cast<double>(p.q_heads) *
                      static_cast<double>(p.q_len);
  const double of_o =
      p.dtype() == DType::kF32 ? 0 : static_cast<double>(p.value_dim);
  return Saturate(rows * (2 + of_o) * sizeof(float));
}

}  // namespace attnd::cuda
