#include "kernels/cuda/baselines/naive/naive.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/baselines/baseline.h"
#include "kernels/cuda/baselines/naive/launcher.h"
#include "kernels/cuda/baselines/naive/scratch.h"
#include "kernels/cuda/baselines/naive/sequence_product.h"
#include "kernels/cuda/baselines/naive/steps.h"
#include "kernels/cuda/launch/wanted.h"

namespace attnd::cuda {
namespace {

// A narrow O cannot be summed over segments in place.
bool NeedsWideOutput(const Problem& p) {
  return p.dtype() != DType::kF32 && p.kv.size() > 1;
}

// The problem's matrices.
struct Matrices {
  NaiveRows x;
  float* s = nullptr;  // [rows, columns]
  void* p = nullptr;   // [rows, columns], in the inputs' type
  // O before it is rounded, if it is summed over segments; or null.
  float* o = nullptr;  // [rows, value_dim]
};

// Cuts `scratch` into them.
Matrices Place(const ForwardArgs& args, BlobOffset problem,
               std::byte* scratch) {
  const Problem& p = args.problem;
  ScratchCutter cutter(scratch);
  Matrices matrices;
  NaiveRows& x = matrices.x;
  x = PlaceRows(p, problem);
  matrices.s = cutter.TakeFloats(x.rows * x.pitch);
  matrices.p = cutter.Take(x.rows * x.pitch, x.dtype);
  x.m = cutter.TakeFloats(x.rows);
  x.l = cutter.TakeFloats(x.rows);
  if (NeedsWideOutput(p) && args.o && args.o.dtype != DType::kF32)
    matrices.o = cutter.TakeFloats(x.rows * p.value_dim);
  return matrices;
}

// One problem's launches.
class ProblemRun {
 public:
  ProblemRun(const ForwardArgs& args, const LaunchParams& params,
             const Matrices& matrices, NaiveLauncher& launcher)
      : args_(args),
        p_(args.problem),
        params_(params),
        matrices_(matrices),
        blocks_(ScoreBlocks(p_)),
        launcher_(launcher) {}

  void All() {
    float* const s = matrices_.s;
    Scores();
    Step(NaiveStep::kScale, s);
    Step(NaiveStep::kRowMax, nullptr);
    Step(NaiveStep::kSubtract, s);
    Step(NaiveStep::kExp, s);
    Step(NaiveStep::kRowSum, nullptr);
    Step(NaiveStep::kDivide, matrices_.p);
    if (args_.o) Output();
  }

 private:
  void Step(NaiveStep step, void* to) {
    launcher_.Step([&](cudaStream_t stream) {
      return LaunchNaiveStep(step, params_, matrices_.x, matrices_.s, to,
                             stream);
    });
  }

  // S, or P, from a column on.
  template <class Void>
  BasicTensorView<Void> Matrix(Void* data, DType dtype, int64_t column) const {
    return FromColumn(
        AsTensor(data, dtype, p_.q_heads, p_.q_len, matrices_.x.pitch), column);
  }

  // S = Q K^T.
  void Scores() {
    for (const ScoreBlock& block : blocks_)
      launcher_.Multiply(
          SequenceProduct(p_, block.sequences, block.q_len, block.kv_len,
                          p_.head_dim)
              .A(p_.q, Heads::kQ)
              .TransposedB(p_.kv[block.segment].k, Heads::kKv)
              .C(Matrix<void>(matrices_.s, DType::kF32, block.column),
                 Heads::kQ)
              .product());
  }

  // O = P V.
  void Output() {
    const UnfinishedTokens o = {.to = args_.o,
                                .sums = matrices_.o,
                                .tokens = p_.q_len,
                                .heads = p_.q_heads,
                                .dim = p_.value_dim,
                                .problem = matrices_.x.problem};
    const TensorView to = WhereSummed(o);
    for (const ScoreBlock& block : blocks_)
      launcher_.Multiply(
          SequenceProduct(p_, block.sequences, block.q_len, p_.value_dim,
                          block.kv_len)
              .A(Matrix<const void>(matrices_.p, p_.dtype(), block.column),
                 Heads::kQ)
              .B(p_.kv[block.segment].v, Heads::kKv)
              .C(to, Heads::kQ, /*accumulate=*/!block.is_first)
              .product());
    launcher_.Finish(params_, o);
  }

  const ForwardArgs& args_;
  const Problem& p_;
  const LaunchParams& params_;
  const Matrices matrices_;
  const std::vector<ScoreBlock> blocks_;
  NaiveLauncher& launcher_;
};

// A group that has its memory; see BaselineRest.
class ForwardGroup {
 public:
  ForwardGroup(absl::Span<const ForwardArgs> group, Workspace& workspace)
      : group_(group), workspace_(workspace) {}

  absl::Status Begin(const NaiveOptions& options) {
    absl::StatusOr<Cublas*> cublas = FindCublas(options.use_cublas, workspace_);
    if (!cublas.ok()) return cublas.status();
    cublas_ = *cublas;
    return PlaceBaselineGroup(group_, NaiveScratchBytes, workspace_, placed_,
                              counts_);
  }

  size_t size() const { return group_.size(); }
  // Scores, six steps, O.
  double Micros(size_t n) const { return NaiveMicros(group_[n].problem, 6, 2); }
  absl::Status Run(size_t n, LaunchPart& part) {
    part.is_last = true;
    if (!HasOutput(group_[n])) return absl::OkStatus();
    NaiveLauncher launcher(group_[n].problem, cublas_, workspace_.stream(),
                           part, counts_);
    ProblemRun(group_[n], placed_.params,
               Place(group_[n], placed_.problems[n], placed_.scratch), launcher)
        .All();
    return launcher.End();
  }
  const LaunchCounts& counts() const { return counts_; }

 private:
  const absl::Span<const ForwardArgs> group_;
  Workspace& workspace_;
  Cublas* cublas_ = nullptr;
  BaselineGroup placed_;
  LaunchCounts counts_;
};

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueNaive(absl::Span<const ForwardArgs> group,
                                          Workspace& workspace,
                                          const NaiveOptions& options) {
  ForwardGroup placed(group, workspace);
  absl::Status status = placed.Begin(options);
  if (status.ok()) status = RunAll(placed);
  if (!status.ok()) return status;
  return placed.counts();
}

absl::StatusOr<std::unique_ptr<Rest>> BeginNaive(
    absl::Span<const ForwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const SliceOptions& slices) {
  ForwardGroup placed(group, workspace);
  absl::Status status = placed.Begin({});
  if (!status.ok()) return status;
  return BeginBaseline(std::move(placed), gpu, slices);
}

int64_t NaiveScratchBytes(const Problem& p) {
  double bytes = MatrixElements(p) * (4.0 + SizeOf(p.dtype()));    // S, P
  bytes += RowCount(p) * 8;                                        // m, l
  if (NeedsWideOutput(p)) bytes += RowCount(p) * p.value_dim * 4;  // O
  return Saturate(bytes + 5 * kTensorAlignment);
}

}  // namespace attnd::cuda
