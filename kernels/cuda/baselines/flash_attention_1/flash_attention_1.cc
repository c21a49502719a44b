#include "kernels/cuda/baselines/flash_attention_1/flash_attention_1.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "kernels/cuda/baselines/baseline.h"
#include "kernels/cuda/baselines/baseline_rest.h"
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

// FLOPs that a multiprocessor does in a microsecond: 20 TFLOP/s on 132
// (tests/bench/RESULTS.md).
constexpr double kFlops = 0.15e6;

// A group that has its memory; see BaselineRest.
class ForwardGroup {
 public:
  ForwardGroup(absl::Span<const ForwardArgs> group, Workspace& workspace)
      : group_(group), workspace_(workspace) {}

  absl::Status Begin() {
    return PlaceBaselineGroup(group_, FlashAttention1ScratchBytes, workspace_,
                              placed_, counts_);
  }

  size_t size() const { return group_.size(); }
  double Micros(size_t n) const {
    const Problem& p = group_[n].problem;
    return 2.0 * static_cast<double>(p.head_dim + p.value_dim) *
           static_cast<double>(p.batch) * static_cast<double>(p.q_heads) *
           static_cast<double>(p.q_len) * static_cast<double>(PaddedKvLen(p)) /
           kFlops;
  }
  absl::Status Run(size_t n, LaunchPart& part) {
    part.is_last = true;
    if (!IsWanted(group_[n])) return absl::OkStatus();
    part.micros -= Micros(n);
    ++counts_.kernels;
    return ToStatus(LaunchFlashAttention1(
                        placed_.params,
                        Place(group_[n], placed_.problems[n], placed_.scratch),
                        group_[n].problem, workspace_.stream()),
                    "FlashAttention-1");
  }
  const LaunchCounts& counts() const { return counts_; }

 private:
  const absl::Span<const ForwardArgs> group_;
  Workspace& workspace_;
  BaselineGroup placed_;
  LaunchCounts counts_;
};

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueFlashAttention1(
    absl::Span<const ForwardArgs> group, Workspace& workspace) {
  ForwardGroup placed(group, workspace);
  absl::Status status = placed.Begin();
  if (status.ok()) status = RunAll(placed);
  if (!status.ok()) return status;
  return placed.counts();
}

absl::StatusOr<std::unique_ptr<Rest>> BeginFlashAttention1(
    absl::Span<const ForwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const SliceOptions& slices) {
  ForwardGroup placed(group, workspace);
  absl::Status status = placed.Begin();
  if (!status.ok()) return status;
  return BeginBaseline(std::move(placed), gpu, slices);
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
