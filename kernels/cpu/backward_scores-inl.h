// What of backward is not a product: from scores to P and dS. Compiled once per
// target.
#if defined(ATTND_KERNELS_CPU_BACKWARD_SCORES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_BACKWARD_SCORES_INL_H_
#undef ATTND_KERNELS_CPU_BACKWARD_SCORES_INL_H_
#else
#define ATTND_KERNELS_CPU_BACKWARD_SCORES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/score_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {

// Tiles of scores [rows, lanes], and what becomes of them.
template <class Words>
struct ScoreTiles {
  Tile scores;      // then P, words along the rows
  Tile d_p;         // then dS, words along the rows
  Tile d_s;         // dS, words along the lanes
  Tile derivative;  // of softcap, if there is one

  ScoreTiles(Scratch& scratch, const Problem& p, int64_t width)
      : scores(TakeTile(scratch, kTileTokens, width)),
        d_p(TakeTile(scratch, kTileTokens, width)),
        d_s(Words::kElements == 1
                ? d_p
                : TakeTile(scratch, kTileTokens, WordsOf<Words>(width))),
        derivative(TakeTile(scratch, p.softcap ? kTileTokens : 0, width)) {}
};

// (E12), with no P above 1: a row's LSE is of all its scores, so none exceeds
// it by more than LSE is rounded. And if `ds` is wanted (E15), (E16): P, and dS
// = P (dP - bar) [softcap'], with lse and bar running along the rows; columns
// [first, first + width).
template <class Words>
HWY_INLINE void RowsToPAndDs(int64_t rows, int64_t first, int64_t width,
                             const float* lse, const float* bar, bool want_ds,
                             bool softcap, const ScoreTiles<Words>& t) {
  const F32 d;
  const auto p_of = [&](int64_t r, int64_t i) {
    const Vf below =
        hn::Sub(hn::Load(d, t.scores.row(r) + i), hn::Set(d, lse[r]));
    return ExpNonPositive(d, AtMost(d, hn::Zero(d), below));
  };
  const auto ds_of = [&](int64_t r, int64_t i, Vf p) {
    const Vf ds =
        hn::Mul(p, hn::Sub(hn::Load(d, t.d_p.row(r) + i), hn::Set(d, bar[r])));
    return softcap ? hn::Mul(ds, hn::Load(d, t.derivative.row(r) + i)) : ds;
  };
  if constexpr (Words::kElements == 1) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = first; i < first + width; i += kLanes) {
        const Vf p = p_of(r, i);
        hn::Store(p, d, t.scores.row(r) + i);
        if (want_ds) hn::Store(ds_of(r, i, p), d, t.d_p.row(r) + i);
      }
    }
  } else {
    // Two rows to a word of P and of dS; a row's dS by two lanes to a word.
    const auto row = [&](int64_t r, int64_t i) {
      return reinterpret_cast<uint16_t*>(t.d_s.row(r)) + i;
    };
    for (int64_t r = 0; r < rows; r += 2) {
      for (int64_t i = first; i < first + width; i += kLanes) {
        const bool both = r + 1 < rows;
        const Vf p0 = p_of(r, i);
        const Vf p1 = both ? p_of(r + 1, i) : hn::Zero(d);
        hn::Store(Words::Pair(p0, p1), d, t.scores.row(r / 2) + i);
        if (!want_ds) continue;
        const Vf ds0 = ds_of(r, i, p0);
        const Vf ds1 = both ? ds_of(r + 1, i, p1) : hn::Zero(d);
        Words::Store(ds0, ds1, row(r, i), row(r + 1, i));
        hn::Store(Words::Pair(ds0, ds1), d, t.d_p.row(r / 2) + i);
      }
    }
  }
}

// Scores of rows [first, first + rows) of a q head over the tokens of
// scratch.pieces: adds the bias and hides what is masked, both contiguous along
// a row here.
HWY_INLINE void BiasAndMaskRows(const Scratch& scratch, int64_t head,
                                int64_t first, int64_t rows, Tile scores) {
  const Sequence& sequence = scratch.sequence;
  const BiasView& bias = sequence.problem().bias;
  HWY_ALIGN float bias_row[kMaxLaneTokens + 16];
  for (const Piece& piece : scratch.pieces) {
    const RowIntervals& intervals = sequence.rows(piece.segment);
    const bool masked = sequence.Masks(piece, first, first + rows - 1);
    if (!bias && !masked) continue;
    for (int64_t r = 0; r < rows; ++r) {
      float* row = scores.row(r) + piece.offset;
      if (bias) {
        const int64_t at = sequence.b() * bias.batch_stride +
                           head * bias.head_stride +
                           (first + r) * bias.row_stride +
                           sequence.bias_column(piece.segment) + piece.first;
        LoadRow(
            static_cast<const std::byte*>(bias.data) + at * SizeOf(bias.dtype),
            bias.dtype, piece.count, piece.count, bias_row);
        for (int64_t i = 0; i < piece.count; ++i) row[i] += bias_row[i];
      }
      if (masked) {
        const Interval seen = intervals.Row(first + r);
        HideOutside(row, 0, piece.count,
                    {seen.lo - piece.first, seen.hi - piece.first});
      }
    }
  }
}

HWY_INLINE void ClearTile(Tile tile, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    std::fill(tile.row(r), tile.row(r) + columns, 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_BACKWARD_SCORES_INL_H_
