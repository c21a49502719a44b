#include "kernels/cuda/baselines/naive/naive_backward.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/baselines/baseline.h"
#include "kernels/cuda/baselines/naive/gradient_steps.h"
#include "kernels/cuda/baselines/naive/launcher.h"
#include "kernels/cuda/baselines/naive/scratch.h"
#include "kernels/cuda/baselines/naive/sequence_product.h"
#include "kernels/cuda/launch/wanted.h"

namespace attnd::cuda {
namespace {

// The problem's matrices [rows, columns], each in a place of its own unless
// said otherwise.
struct Matrices {
  NaiveGradientRows rows;
  float* qk = nullptr;
  float* dp = nullptr;
  // In the inputs' type. In the mathematical order P and dX, and in f32 where
  // dP is; in autograd's P, dE and dX, with space for f32.
  void* p = nullptr;
  // Of autograd.
  float* s = nullptr;
  float* d = nullptr;
  float* e = nullptr;
  // A result before it is rounded, one at a time.
  float* sums = nullptr;
};

// Cuts `scratch` into them.
Matrices Place(const BackwardArgs& args, const BaselineGroup& placed, size_t n,
               NaiveOrder order) {
  const Problem& p = args.problem;
  ScratchCutter cutter(placed.scratch);
  Matrices m;
  NaiveGradientRows& rows = m.rows;
  static_cast<NaiveRows&>(rows) = PlaceRows(p, placed.problems[n]);
  rows.gradients = placed.gradients[n];
  const int64_t elements = rows.rows * rows.pitch;
  m.qk = cutter.TakeFloats(elements);
  m.dp = cutter.TakeFloats(elements);
  rows.delta = cutter.TakeFloats(rows.rows);
  if (order == NaiveOrder::kAutograd) {
    m.p = cutter.TakeFloats(elements);
    m.s = cutter.TakeFloats(elements);
    m.d = cutter.TakeFloats(elements);
    m.e = cutter.TakeFloats(elements);
    rows.m = cutter.TakeFloats(rows.rows);
    rows.l = cutter.TakeFloats(rows.rows);
  } else {
    m.p = p.dtype() == DType::kF32 ? m.dp : cutter.Take(elements, p.dtype());
  }
  m.sums = cutter.TakeFloats(0);  // the rest
  return m;
}

// Elements of the largest result that may have to be summed up in f32 before it
// is rounded: dQ over segments, dK and dV over the q heads of a K/V head.
double MostSums(const Problem& p) {
  if (p.dtype() == DType::kF32) return 0;
  double most = p.kv.size() > 1 ? RowCount(p) * p.head_dim : 0;
  if (p.group() == 1) return most;
  for (const KvSegment& s : p.kv) {
    const double tokens = static_cast<double>(p.batch) *
                          static_cast<double>(p.kv_heads) *
                          static_cast<double>(s.len);
    most = std::max(most, tokens * std::max(p.head_dim, p.value_dim));
  }
  return most;
}

// One problem's launches.
class ProblemRun {
 public:
  ProblemRun(const BackwardArgs& args, const LaunchParams& params,
             const Matrices& matrices, bool deterministic,
             NaiveLauncher& launcher)
      : args_(args),
        p_(args.problem),
        params_(params),
        m_(matrices),
        rows_(m_.rows),
        blocks_(ScoreBlocks(p_)),
        head_sums_(deterministic ? HeadSums::kApart : HeadSums::kTogether),
        launcher_(launcher) {}

  void All(NaiveOrder order) {
    wants_dv_ = Wants(&KvSegment::dv);
    wants_dx_ = WantsDq() || Wants(&KvSegment::dk);
    if (order == NaiveOrder::kAutograd) {
      Autograd();
    } else {
      Mathematical();
    }
    if (WantsDq()) QueryGradient();                            // (E17)
    KeyGradient(p_.q, p_.head_dim, &KvSegment::dk, p_.scale);  // (E18)
  }

 private:
  void Mathematical() {
    ScoreProducts(p_.q, &KvSegment::k, p_.head_dim, m_.qk);
    if (wants_dv_) {
      Step([&](cudaStream_t stream) {
        return LaunchProbabilities(params_, rows_, m_.qk, m_.p, stream);
      });
      KeyGradient(args_.d_o, p_.value_dim, &KvSegment::dv, 1.0f);  // (E13)
    }
    if (!wants_dx_) return;
    ScoreProducts(args_.d_o, &KvSegment::v, p_.value_dim, m_.dp);
    Step([&](cudaStream_t stream) {
      return LaunchRowTerms(params_, rows_, stream);
    });
    Step([&](cudaStream_t stream) {
      return LaunchScoreGradient(params_, rows_, m_.qk, m_.dp, m_.p, stream);
    });
  }

  void Autograd() {
    ScoreProducts(p_.q, &KvSegment::k, p_.head_dim, m_.qk);
    Forward(NaiveStep::kScale, m_.qk, m_.s);
    Forward(NaiveStep::kRowMax, m_.s, nullptr);
    Forward(NaiveStep::kSubtract, m_.s, m_.d);
    Forward(NaiveStep::kExp, m_.d, m_.e);
    Step([&](cudaStream_t stream) {
      return LaunchRowTerms(params_, rows_, stream);
    });
    Forward(NaiveStep::kDivide, m_.e, m_.p);
    if (wants_dx_) ScoreProducts(args_.d_o, &KvSegment::v, p_.value_dim, m_.dp);
    KeyGradient(args_.d_o, p_.value_dim, &KvSegment::dv, 1.0f);  // (E13)
    if (wants_dx_) BackToProducts();
  }

  // Steps 7' to 2', from dP to dX.
  void BackToProducts() {
    float* const de = static_cast<float*>(m_.p);
    float* const dd = m_.dp;
    Step([&](cudaStream_t stream) {
      return LaunchDivideGradient(params_, rows_, m_.dp, de, stream);
    });
    Step([&](cudaStream_t stream) {
      return LaunchSumGradient(rows_, de, stream);
    });
    Step([&](cudaStream_t stream) {
      return LaunchExpGradient(rows_, de, m_.e, dd, stream);
    });
    Step([&](cudaStream_t stream) {
      return LaunchScaleGradient(params_, rows_, m_.qk, dd, m_.p, stream);
    });
  }

  // Q K^T, or dO V^T.
  void ScoreProducts(const ConstTensorView& queries,
                     ConstTensorView KvSegment::*keys, int64_t dim, float* to) {
    for (const ScoreBlock& block : blocks_)
      launcher_.Multiply(
          SequenceProduct(p_, block.sequences, block.q_len, block.kv_len, dim)
              .A(queries, Heads::kQ)
              .TransposedB(p_.kv[block.segment].*keys, Heads::kKv)
              .C(FromColumn(AsTensor<void>(to, DType::kF32, p_.q_heads,
                                           p_.q_len, rows_.pitch),
                            block.column),
                 Heads::kQ)
              .product());
  }

  // dQ = scale dX K.
  void QueryGradient() {
    const bool wide = p_.kv.size() > 1 && args_.dq.dtype != DType::kF32;
    const UnfinishedTokens dq = {.to = args_.dq,
                                 .sums = wide ? m_.sums : nullptr,
                                 .tokens = p_.q_len,
                                 .heads = p_.q_heads,
                                 .dim = p_.head_dim,
                                 .problem = rows_.problem};
    for (const ScoreBlock& block : blocks_)
      launcher_.Multiply(
          SequenceProduct(p_, block.sequences, block.q_len, p_.head_dim,
                          block.kv_len)
              .A(Probabilities(block), Heads::kQ)
              .B(p_.kv[block.segment].k, Heads::kKv)
              .C(WhereSummed(dq), Heads::kQ, /*accumulate=*/!block.is_first)
              .Scale(p_.scale)
              .product());
    launcher_.Finish(params_, dq);
  }

  // dV = P^T dO, or dK = scale dX^T Q, of all segments that want it.
  void KeyGradient(const ConstTensorView& queries, int64_t dim,
                   TensorView KvSegment::*gradient, float scale) {
    const bool wide = !SumsAtOnce(p_, queries, head_sums_);
    auto block = blocks_.begin();
    for (int n = 0; n < static_cast<int>(p_.kv.size()); ++n) {
      const TensorView& to = p_.kv[n].*gradient;
      const UnfinishedTokens result = {
          .to = to,
          .sums = wide && to.dtype != DType::kF32 ? m_.sums : nullptr,
          .tokens = p_.kv[n].len,
          .heads = p_.kv_heads,
          .dim = dim,
          .segment = n,
          .problem = rows_.problem};
      for (; block != blocks_.end() && block->segment == n; ++block) {
        if (!to) continue;
        const SequenceProduct product =
            SequenceProduct(p_, block->sequences, block->kv_len, dim,
                            block->q_len)
                .TransposedA(Probabilities(*block), Heads::kQ)
                .B(queries, Heads::kQ)
                .C(WhereSummed(result), Heads::kKv)
                .Scale(scale);
        for (const Product& part : SumOverHeads(product.product(), head_sums_))
          launcher_.Multiply(part);
      }
      if (to && p_.kv[n].len > 0) launcher_.Finish(params_, result);
    }
  }

  // P, or dX, of a block.
  ConstTensorView Probabilities(const ScoreBlock& block) const {
    return FromColumn(AsTensor<const void>(m_.p, p_.dtype(), p_.q_heads,
                                           p_.q_len, rows_.pitch),
                      block.column);
  }

  bool WantsDq() const { return args_.dq && p_.q_len > 0; }
  bool Wants(TensorView KvSegment::*gradient) const {
    return std::any_of(p_.kv.begin(), p_.kv.end(), [&](const KvSegment& s) {
      return s.*gradient && s.len > 0;
    });
  }

  void Forward(NaiveStep step, const float* from, void* to) {
    Step([&](cudaStream_t stream) {
      return LaunchNaiveStep(step, params_, rows_, from, to, stream);
    });
  }
  // Without a row there are gradients of K and V to be written, all 0.
  template <class Launch>
  void Step(Launch launch) {
    if (rows_.rows > 0) launcher_.Step(launch);
  }

  const BackwardArgs& args_;
  const Problem& p_;
  const LaunchParams& params_;
  const Matrices m_;
  const NaiveGradientRows& rows_;
  const std::vector<ScoreBlock> blocks_;
  const HeadSums head_sums_;
  NaiveLauncher& launcher_;
  bool wants_dv_ = false, wants_dx_ = false;
};

// A group that has its memory; see BaselineRest.
class BackwardGroup {
 public:
  BackwardGroup(absl::Span<const BackwardArgs> group, Workspace& workspace,
                const NaiveBackwardOptions& options)
      : group_(group), workspace_(workspace), options_(options) {}

  absl::Status Begin() {
    absl::StatusOr<Cublas*> cublas =
        FindCublas(options_.use_cublas && !options_.deterministic, workspace_);
    if (!cublas.ok()) return cublas.status();
    cublas_ = *cublas;
    return PlaceBaselineGroup(
        group_,
        [this](const Problem& p) {
          return NaiveBackwardScratchBytes(p, options_.order);
        },
        workspace_, placed_, counts_);
  }

  size_t size() const { return group_.size(); }
  // P, delta, dX; S, dV, dP, dQ, dK.
  double Micros(size_t n) const { return NaiveMicros(group_[n].problem, 3, 5); }
  absl::Status Run(size_t n, LaunchPart& part) {
    part.is_last = true;
    if (!HasOutput(group_[n])) return absl::OkStatus();
    NaiveLauncher launcher(group_[n].problem, cublas_, workspace_.stream(),
                           part, counts_);
    ProblemRun(group_[n], placed_.params,
               Place(group_[n], placed_, n, options_.order),
               options_.deterministic, launcher)
        .All(options_.order);
    return launcher.End();
  }
  const LaunchCounts& counts() const { return counts_; }

 private:
  const absl::Span<const BackwardArgs> group_;
  Workspace& workspace_;
  const NaiveBackwardOptions options_;
  Cublas* cublas_ = nullptr;
  BaselineGroup placed_;
  LaunchCounts counts_;
};

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueNaiveBackward(
    absl::Span<const BackwardArgs> group, Workspace& workspace,
    const NaiveBackwardOptions& options) {
  BackwardGroup placed(group, workspace, options);
  absl::Status status = placed.Begin();
  if (status.ok()) status = RunAll(placed);
  if (!status.ok()) return status;
  return placed.counts();
}

absl::StatusOr<std::unique_ptr<Rest>> BeginNaiveBackward(
    absl::Span<const BackwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const SliceOptions& slices, const NaiveBackwardOptions& options) {
  BackwardGroup placed(group, workspace, options);
  absl::Status status = placed.Begin();
  if (!status.ok()) return status;
  return BeginBaseline(std::move(placed), gpu, slices);
}

int64_t NaiveBackwardScratchBytes(const Problem& p, NaiveOrder order) {
  const bool autograd = order == NaiveOrder::kAutograd;
  const double of_element = autograd                   ? 6 * 4
                            : p.dtype() == DType::kF32 ? 2 * 4
                                                       : 2 * 4 + 2;
  const double of_row = autograd ? 3 * 4 : 4;  // delta; m, l
  return Saturate(MatrixElements(p) * of_element + RowCount(p) * of_row +
                  MostSums(p) * 4 + 10 * kTensorAlignment);
}

}  // namespace attnd::cuda
