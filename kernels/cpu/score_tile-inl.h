// What the forward and the backward kernels do to tiles between products.
// Compiled once per target.
#if defined(ATTND_KERNELS_CPU_SCORE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_SCORE_TILE_INL_H_
#undef ATTND_KERNELS_CPU_SCORE_TILE_INL_H_
#else
#define ATTND_KERNELS_CPU_SCORE_TILE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/cpu/tile.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kInf = std::numeric_limits<float>::infinity();

// [rows, columns]
HWY_INLINE Tile TakeTile(Scratch& scratch, int64_t rows, int64_t columns) {
  const int64_t stride = TileStride(columns);
  return {scratch.Take(rows * stride), stride};
}

// score -> c tanh(score / c), and if asked its derivative.
HWY_INLINE void Softcap(float c, int64_t rows, int64_t width, Tile scores,
                        const Tile* derivative) {
  const F32 d;
  const Vf vc = hn::Set(d, c);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; i += kLanes) {
      float* at = scores.row(r) + i;
      const TanhResult<Vf> t = Tanh(d, hn::Div(hn::Load(d, at), vc));
      hn::Store(hn::Mul(vc, t.tanh), d, at);
      if (derivative != nullptr) {
        hn::Store(t.derivative, d, derivative->row(r) + i);
      }
    }
  }
}

// What is not seen scores -inf: all of `row` [from, to) outside [lo, hi).
HWY_INLINE void HideOutside(float* row, int64_t from, int64_t to,
                            Interval seen) {
  const int64_t lo = std::clamp(seen.lo, from, to);
  const int64_t hi = std::clamp(seen.hi, lo, to);
  std::fill(row + from, row + lo, -kInf);
  std::fill(row + hi, row + to, -kInf);
}

// Masks and bias of a tile whose lanes are q rows [q0, q0 + rows) of `heads`
// q heads from `head` on, head by head, and whose rows are the tokens of
// scratch.pieces.
class LaneRows {
 public:
  LaneRows(Scratch& scratch, int64_t head, int64_t heads, int64_t q0,
           int64_t rows)
      : scratch_(scratch),
        sequence_(scratch.sequence),
        head_(head),
        heads_(heads),
        q0_(q0),
        rows_(rows) {}

  int64_t b() const { return sequence_.b(); }
  int64_t lanes() const { return heads_ * rows_; }
  int64_t head(int64_t lane) const { return head_ + lane / rows_; }
  int64_t q_row(int64_t lane) const { return q0_ + lane % rows_; }
  // Calls run(lane, head, q_row) for each lane.
  template <class Run>
  void ForEach(Run run) const {
    int64_t lane = 0;
    for (int64_t h = head_; h < head_ + heads_; ++h) {
      for (int64_t r = q0_; r < q0_ + rows_; ++r) run(lane++, h, r);
    }
  }
  // The lanes' rows.
  auto RowsOf(const ConstTensorView& view) const {
    return Rows([this, &view](int64_t lane) {
      const int64_t begin = lane / rows_ * rows_;
      return RunOf(view, sequence_.b(), q0_, head(lane), begin, rows_);
    });
  }

  // Adds the bias; `temporary` is a tile as `scores`.
  void AddBias(Tile scores, Tile temporary, int64_t tokens) const {
    const F32 d;
    const BiasView& bias = sequence_.problem().bias;
    HWY_ALIGN float rows[4 * (kTileTokens + 16)];
    const int64_t width = RoundUpToLanes(lanes());
    for (int64_t i = 0; i < width; i += 4) {
      for (int64_t r = 0; r < 4; ++r) {
        float* to = rows + r * (kTileTokens + 16);
        if (i + r >= lanes()) {
          std::fill(to, to + kTileTokens, 0.0f);
          continue;
        }
        LoadBias(bias, head(i + r), q_row(i + r), to);
      }
      Transpose4(rows, kTileTokens + 16, (tokens + 3) / 4 * 4,
                 temporary.data + i, temporary.stride);
    }
    for (int64_t r = 0; r < tokens; ++r) {
      for (int64_t i = 0; i < width; i += kLanes) {
        hn::Store(hn::Add(hn::Load(d, scores.row(r) + i),
                          hn::Load(d, temporary.row(r) + i)),
                  d, scores.row(r) + i);
      }
    }
  }

  // Whether any of the rows hides any of the tokens.
  bool Masks() const {
    return std::any_of(scratch_.pieces.begin(), scratch_.pieces.end(),
                       [&](const Piece& piece) { return Masks(piece); });
  }

  // Hides what no mask lets through. Both ends of the rows' intervals never
  // decrease, so a token is seen by one run of rows, and the runs of the next
  // token begin no earlier.
  void ApplyMask(Tile scores) const {
    for (const Piece& piece : scratch_.pieces) {
      if (!Masks(piece)) continue;
      const RowIntervals& rows = sequence_.rows(piece.segment);
      std::vector<Interval>& intervals = scratch_.intervals;
      intervals.resize(rows_);
      for (int64_t i = 0; i < rows_; ++i) intervals[i] = rows.Row(q0_ + i);
      Interval seen{0, 0};
      for (int64_t t = 0; t < piece.count; ++t) {
        const int64_t column = piece.first + t;
        while (seen.lo < rows_ && intervals[seen.lo].hi <= column) ++seen.lo;
        while (seen.hi < rows_ && intervals[seen.hi].lo <= column) ++seen.hi;
        float* row = scores.row(piece.offset + t);
        for (int64_t lane = 0; lane < lanes(); lane += rows_) {
          HideOutside(row + lane, 0, rows_, seen);
        }
      }
    }
  }

 private:
  bool Masks(const Piece& piece) const {
    return sequence_.Masks(piece, q0_, q0_ + rows_ - 1);
  }

  void LoadBias(const BiasView& bias, int64_t head, int64_t q_row,
                float* to) const {
    const int64_t row = sequence_.b() * bias.batch_stride +
                        head * bias.head_stride + q_row * bias.row_stride;
    for (const Piece& piece : scratch_.pieces) {
      const int64_t at =
          row + sequence_.bias_column(piece.segment) + piece.first;
      LoadRow(
          static_cast<const std::byte*>(bias.data) + at * SizeOf(bias.dtype),
          bias.dtype, piece.count, piece.count, to + piece.offset);
    }
  }

  Scratch& scratch_;
  const Sequence& sequence_;
  const int64_t head_, heads_, q0_, rows_;
};

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_SCORE_TILE_INL_H_
