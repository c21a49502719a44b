// What the two passes of backward share. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_BACKWARD_INL_H_
#undef ATTND_KERNELS_CPU_BACKWARD_INL_H_
#else
#define ATTND_KERNELS_CPU_BACKWARD_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd {
namespace HWY_NAMESPACE {

// What one row of Q brings to (E12) and (E15): P = exp(score - lse),
// dS = P (dP - bar).
struct RowTerms {
  float lse;  // +inf where the row attends to nothing: P is 0
  float bar;  // delta - d_lse
  bool empty;
};

HWY_INLINE RowTerms TermsOf(const BackwardArgs& args, int64_t b, int64_t head,
                            int64_t row) {
  const float lse = RowAt(args.lse, b, head)[row];
  if (lse == -kInf) return {kInf, 0, true};
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
  return {lse, bar, false};
}

// Tiles of scores.
struct ScoreTiles {
  Tile scores;      // then P
  Tile d_p;         // then dS
  Tile derivative;  // of softcap, if there is one

  ScoreTiles(Scratch& scratch, const Problem& p, int64_t width)
      : scores(TakeTile(scratch, kTileTokens, width)),
        d_p(TakeTile(scratch, kTileTokens, width)),
        derivative(TakeTile(scratch, p.softcap ? kTileTokens : 0, width)) {}
};

HWY_INLINE void ClearTile(Tile tile, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    std::fill(tile.row(r), tile.row(r) + columns, 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_BACKWARD_INL_H_
