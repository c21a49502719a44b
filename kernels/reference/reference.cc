#include "kernels/reference/reference.h"

#include <algorithm>
#include <limits>

#include "kernels/dtype.h"
#include "kernels/mask.h"
#include "kernels/reference/block.h"
#include "kernels/reference/drive.h"
#include "kernels/row_merge.h"

namespace attnd::reference {
namespace {

absl::Status Choose(Algorithm algorithm, const Problem& problem,
                    Choice& choice) {
  if (algorithm == Algorithm::kAuto)
    return absl::InvalidArgumentError(
        "the reference needs to be told which algorithm");
  choice.algorithm = algorithm;
  if (algorithm == Algorithm::kNaive) choice.round_to = problem.dtype();
  return absl::OkStatus();
}

absl::Status Result(bool done) {
  return done ? absl::OkStatus() : absl::CancelledError("cancelled");
}

template <typename Void>
int64_t RowOffset(const BasicTensorView<Void>& view, int64_t b, int64_t t,
                  int64_t h) {
  return b * view.batch_stride + t * view.token_stride + h * view.head_stride;
}

// Writes rows of `from` from `first` on to head h's tokens, and zeros to the
// tokens in [count, len); what was there before is added to both.
void StoreTokens(const Matrix<float>& from, int64_t first, int64_t count,
                 int64_t len, int64_t b, int64_t h, const TensorView& to,
                 const ConstTensorView& before = {}) {
  if (!to) return;
  for (int64_t t = 0; t < len; ++t) {
    const int64_t row = RowOffset(to, b, t, h);
    for (int64_t d = 0; d < from.cols(); ++d) {
      float value = t < count ? from[first + t][d] : 0.0f;
      if (before) {
        value += LoadElement(before.data, before.dtype,
                             RowOffset(before, b, t, h) + d);
      }
      StoreElement(to.data, to.dtype, row + d, value);
    }
  }
}

void StoreRows(const std::vector<float>& from, int64_t len, int64_t b,
               int64_t h, const RowView& to) {
  if (!to) return;
  float* rows = to.data + b * to.batch_stride + h * to.head_stride;
  std::copy(from.begin(), from.end(), rows);
  std::fill(rows + from.size(), rows + len, kMinusInf<float>);
}

// (E19), (E20)
void MergeWith(const RowState& before, int64_t b, int64_t h, bool wants_o,
               HeadForward<float>& head) {
  const ConstTensorView& o = before.o;
  const float* lses = before.lse.data + b * before.lse.batch_stride +
                      h * before.lse.head_stride;
  for (size_t i = 0; i < head.lse.size(); ++i) {
    const RowMerge merge = MergeRow(head.lse[i], lses[i]);
    head.lse[i] = merge.lse;
    if (!wants_o || lses[i] == kMinusInf<float>) continue;
    const int64_t base = RowOffset(o, b, static_cast<int64_t>(i), h);
    for (int64_t d = 0; d < head.o.cols(); ++d) {
      head.o[i][d] =
          merge.weight * head.o[i][d] +
          merge.weight_before * LoadElement(o.data, o.dtype, base + d);
    }
  }
}

// Pairs in blocks that hold an unmasked one.
double BlockPairs(const RowIntervals& intervals) {
  constexpr BlockSizes kBlock;
  double pairs = 0;
  for (int64_t i0 = 0; i0 < intervals.rows; i0 += kBlock.rows) {
    const int64_t i1 = std::min(i0 + kBlock.rows, intervals.rows);
    const Interval seen = intervals.Rows(i0, i1 - 1);
    if (seen.empty()) continue;
    const int64_t first = seen.lo / kBlock.columns * kBlock.columns;
    const int64_t blocks =
        (seen.hi - first + kBlock.columns - 1) / kBlock.columns;
    const int64_t last =
        std::min(first + blocks * kBlock.columns, intervals.columns);
    pairs += static_cast<double>(i1 - i0) * static_cast<double>(last - first);
  }
  return pairs;
}

}  // namespace

absl::Status Forward(const ForwardArgs& args, Algorithm algorithm) {
  const Problem& p = args.problem;
  Choice choice;
  if (absl::Status s = Choose(algorithm, p, choice); !s.ok()) return s;
  if (!args.o && !args.lse) return absl::OkStatus();
  return Result(ForwardHeads<float>(
      p, choice, [&](int64_t b, int64_t h, HeadForward<float>& head) {
        if (args.before.lse) {
          MergeWith(args.before, b, h, static_cast<bool>(args.o), head);
        }
        StoreTokens(head.o, 0, head.o.rows(), p.q_len, b, h, args.o);
        StoreRows(head.lse, p.q_len, b, h, args.lse);
      }));
}

absl::Status Backward(const BackwardArgs& args, Algorithm algorithm) {
  const Problem& p = args.problem;
  Choice choice;
  if (absl::Status s = Choose(algorithm, p, choice); !s.ok()) return s;
  return Result(BackwardHeads<float>(
      args, choice,
      [&](int64_t b, int64_t h, const Matrix<float>& dq) {
        StoreTokens(dq, 0, dq.rows(), p.q_len, b, h, args.dq, args.dq_before);
      },
      [&](int64_t b, int64_t kv_head, const Matrix<float>& dk,
          const Matrix<float>& dv) {
        int64_t first = 0;
        for (const KvSegment& s : p.kv) {
          StoreTokens(dk, first, KvLen(s, b), s.len, b, kv_head, s.dk,
                      s.dk_before);
          StoreTokens(dv, first, KvLen(s, b), s.len, b, kv_head, s.dv,
                      s.dv_before);
          first += KvLen(s, b);
        }
      }));
}

int64_t ScratchBytes(Op op, const Problem& p, Algorithm algorithm) {
  // In double, so that nothing overflows; one head is in memory at a time.
  const double rows = p.q_len, dims = p.head_dim + p.value_dim;
  double columns = 0;
  for (const KvSegment& s : p.kv) columns += s.len;
  double floats = rows * p.head_dim + columns * dims;  // Q, K, V
  floats += rows * p.value_dim + rows;                 // O, LSE
  if (op == Op::kBackward) floats += (rows + 2 * columns) * dims + 2 * rows;
  if (algorithm == Algorithm::kNaive) {
    floats +=
        rows * columns * (op == Op::kForward ? 2 : 3);  // S, P; P, slope, dS
  } else {
    floats += 2 * rows + 64 * dims + (1 << 14);  // m, l; blocks
  }
  const double bytes = floats * sizeof(float);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return bytes < static_cast<double>(kMost) ? static_cast<int64_t>(bytes)
                                            : kMost;
}

double VisitedFlops(Op op, const Problem& p, Algorithm algorithm) {
  // Without a row or a head a batch may be any number.
  if (p.q_len == 0 || p.q_heads == 0) return 0;
  const bool skips = algorithm == Algorithm::kFlashAttention1 ||
                     algorithm == Algorithm::kFlashAttention2;
  double pairs = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (const KvSegment& segment : p.kv) {
      const RowIntervals intervals = MakeRowIntervals(p, b, segment);
      pairs += skips ? BlockPairs(intervals)
                     : static_cast<double>(intervals.rows) *
                           static_cast<double>(intervals.columns);
    }
  }
  const double forward = pairs * static_cast<double>(p.q_heads) * 2 *
                         static_cast<double>(p.head_dim + p.value_dim);
  return op == Op::kForward ? forward : 2.5 * forward;
}

}  // namespace attnd::reference
