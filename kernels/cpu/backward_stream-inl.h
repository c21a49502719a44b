// Q and dO as they stream by in backward. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_BACKWARD_STREAM_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_BACKWARD_STREAM_INL_H_
#undef ATTND_KERNELS_CPU_BACKWARD_STREAM_INL_H_
#else
#define ATTND_KERNELS_CPU_BACKWARD_STREAM_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/score_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {

// What one row of Q brings to (E12) and (E15): P = exp(score - lse),
// dS = P (dP - bar).
struct RowTerms {
  float lse;  // +inf where the row attends to nothing: P is 0
  float bar;  // delta - d_lse
};

HWY_INLINE RowTerms TermsOf(const BackwardArgs& args, int64_t b, int64_t head,
                            int64_t row) {
  const float lse = RowAt(args.lse, b, head)[row];
  if (lse == -kInf) return {kInf, 0};
  const int64_t dim = args.problem.value_dim;
  float bar = 0;
  if (args.delta) {
    bar = RowAt(args.delta, b, head)[row];
  } else {
    const F32 d;
    HWY_ALIGN float o[kMaxHeadDim];
    HWY_ALIGN float d_o[kMaxHeadDim];
    const int64_t padded = RoundUpToLanes(dim);
    LoadRow(RowAt(args.o, b, row, head), args.o.dtype, dim, padded, o);
    LoadRow(RowAt(args.d_o, b, row, head), args.d_o.dtype, dim, padded, d_o);
    Vf sum = hn::Zero(d);
    for (int64_t i = 0; i < padded; i += kLanes) {
      sum = hn::MulAdd(hn::Load(d, o + i), hn::Load(d, d_o + i), sum);
    }
    bar = hn::GetLane(hn::SumOfLanes(d, sum));
  }
  if (args.d_lse) bar -= RowAt(args.d_lse, b, head)[row];
  return {lse, bar};
}

// Rows of Q or dO of one q head, packed for the products along their dim and
// for those along the rows.
template <class RowWords, class Words>
struct PackedRows {
  static constexpr bool kOneTile =
      RowWords::kElements == 1 && Words::kElements == 1;
  Tile rows;   // RowWords of [rows, dim]
  Tile along;  // Words of [rows, dim] along the rows

  // Moves `memory` on.
  PackedRows(int64_t count, int64_t dim, float*& memory) {
    const auto take = [&](int64_t rows, int64_t columns) {
      const Tile tile{memory, TileStride(columns)};
      memory = tile.row(rows);
      return tile;
    };
    rows = take(count, WordsOf<RowWords>(dim));
    along = kOneTile ? rows : take(WordsOf<Words>(count), dim);
  }

  // From row `first` on, a multiple of Words::kElements.
  PackedRows from(int64_t first) const {
    PackedRows result = *this;
    result.rows.data = rows.row(first);
    result.along.data = along.row(first / Words::kElements);
    return result;
  }

  template <class RowOf>
  void Pack(int64_t count, int64_t dim, DType dtype, RowOf row_of) const {
    PackRows<RowWords>(count, dim, dtype, row_of, rows);
    if (!kOneTile) PackAlongTokens<Words>(count, dim, dtype, row_of, along);
  }
};

// Rows of one q head and all that backward needs of them. Scores are products
// of ScoreWords, all else of Words.
template <class ScoreWords, class Words>
struct Stream {
  PackedRows<ScoreWords, Words> q;
  PackedRows<Words, Words> d_o;
  float* lse;  // [rows]
  float* bar;  // [rows]

  // In `memory` for `rows` rows: PackedRowsFloats, and where the words differ
  // as much again.
  Stream(const Problem& p, int64_t rows, float* memory)
      : q(rows, p.head_dim, memory),
        d_o(rows, p.value_dim, memory),
        lse(memory),
        bar(memory + rows) {}

  // From row `first` on, a multiple of Words::kElements.
  Stream from(int64_t first) const {
    Stream result = *this;
    result.q = q.from(first);
    result.d_o = d_o.from(first);
    result.lse += first;
    result.bar += first;
    return result;
  }

  // Rows [first, first + count) of q head `head` to the first of its own.
  void Pack(const BackwardArgs& args, int64_t b, int64_t head, int64_t first,
            int64_t count) const {
    for (int64_t r = 0; r < count; ++r) {
      const RowTerms terms = TermsOf(args, b, head, first + r);
      lse[r] = terms.lse;
      bar[r] = terms.bar;
    }
    const auto rows_of = [&](const ConstTensorView& view) {
      return [this, row = RunOf(view, b, first, head, 0, count)](
                 int64_t r) -> const void* {
        // Of an empty row nothing counts, not even NaN.
        return lse[r] == kInf ? nullptr : row.first + r * row.stride;
      };
    };
    const Problem& p = args.problem;
    q.Pack(count, p.head_dim, p.q.dtype, rows_of(p.q));
    d_o.Pack(count, p.value_dim, args.d_o.dtype, rows_of(args.d_o));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_BACKWARD_STREAM_INL_H_
