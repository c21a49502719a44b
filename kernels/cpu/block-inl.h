// What the forward and the backward kernels do to tiles between products.
// Compiled once per target.
#if defined(ATTND_KERNELS_CPU_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_BLOCK_INL_H_
#undef ATTND_KERNELS_CPU_BLOCK_INL_H_
#else
#define ATTND_KERNELS_CPU_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/gemm-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/prefetcher.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/tile.h"

HWY_BEFORE_NAMESPACE();
namespace attnd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kInf = std::numeric_limits<float>::infinity();

// What Transpose4 and whole vectors both divide.
inline constexpr int64_t kLanePad = kLanes < 4 ? 4 : kLanes;

HWY_INLINE int64_t RoundUpToLanes(int64_t n) {
  return (n + kLanePad - 1) / kLanePad * kLanePad;
}

// Words that n elements along a product's k take.
template <class Words>
HWY_INLINE int64_t WordsOf(int64_t n) {
  return (n + Words::kElements - 1) / Words::kElements;
}

// Calls run(Words()) for what the problem's products are made of.
template <class Run>
HWY_INLINE void WithWords([[maybe_unused]] const Problem& p, Run run) {
#if ATTND_BF16_DOT
  if (p.dtype() == DType::kBF16 && HasBF16Dot()) return run(BF16Words());
#endif
  run(F32Words());
}

// [rows, columns]
HWY_INLINE Tile TakeTile(Scratch& scratch, int64_t rows, int64_t columns) {
  const int64_t stride = TileStride(columns);
  return {scratch.Take(rows * stride), stride};
}

// Tokens of Q, K, V or dO become words in three ways. row_of(i) is token i's
// row of `dim` elements, or null for zeros. All f32 words need is converted on
// the way; bf16 words are what lies in memory.

// A row to words, zeros up to `padded` of them, a multiple of kLanes.
template <class Words>
HWY_INLINE void LoadWords(const void* from, DType dtype, int64_t dim,
                          int64_t padded, float* to) {
  if constexpr (Words::kElements == 1) {
    LoadRow(from, dtype, from == nullptr ? 0 : dim, padded, to);
  } else {
    const int64_t bytes = from == nullptr ? 0 : dim * SizeOf(dtype);
    if (bytes > 0) std::memcpy(to, from, bytes);
    std::memset(reinterpret_cast<std::byte*>(to) + bytes, 0,
                padded * sizeof(float) - bytes);
  }
}

// Asks for a row that is packed some rows later.
template <class RowOf>
HWY_INLINE void Ahead(int64_t i, int64_t tokens, int64_t bytes, RowOf row_of) {
  constexpr int64_t kAhead = 16;  // tokens
  constexpr int64_t kLine = 64;   // bytes
  if (i + kAhead >= tokens) return;
  const auto* row = static_cast<const std::byte*>(row_of(i + kAhead));
  if (row == nullptr) return;
  for (int64_t at = 0; at < bytes; at += kLine) hwy::Prefetch(row + at);
}

// Token i's row to row i of `to` [tokens, words of dim], zeros up to the next
// multiple of kLanes.
template <class Words, class RowOf>
HWY_INLINE void PackRows(int64_t tokens, int64_t dim, DType dtype, RowOf row_of,
                         Tile to) {
  const int64_t padded = RoundUpToLanes(WordsOf<Words>(dim));
  for (int64_t i = 0; i < tokens; ++i) {
    Ahead(i, tokens, dim * SizeOf(dtype), row_of);
    LoadWords<Words>(row_of(i), dtype, dim, padded, to.row(i));
  }
}

// The same to column i of `to` [words of dim rounded up to 4, tokens], zeros in
// the columns up to the next multiple of kLanes.
template <class Words, class RowOf>
HWY_INLINE void PackColumns(int64_t tokens, int64_t dim, DType dtype,
                            RowOf row_of, Tile to) {
  HWY_ALIGN float rows[4 * kMaxHeadDim];
  const int64_t words = WordsOf<Words>(dim);
  for (int64_t i = 0; i < RoundUpToLanes(tokens); i += 4) {
    for (int64_t r = 0; r < 4; ++r) {
      if (i + r < tokens) Ahead(i + r, tokens, dim * SizeOf(dtype), row_of);
      LoadWords<Words>(i + r < tokens ? row_of(i + r) : nullptr, dtype, dim,
                       RoundUpToLanes(words), rows + r * kMaxHeadDim);
    }
    Transpose4(rows, kMaxHeadDim, (words + 3) / 4 * 4, to.data + i, to.stride);
  }
}

// For products along the tokens: element d of the tokens of one word to column
// d of `to` [words of tokens, dim], zeros up to the next multiple of kLanes.
template <class Words, class RowOf>
HWY_INLINE void PackAlongTokens(int64_t tokens, int64_t dim, DType dtype,
                                RowOf row_of, Tile to) {
  if constexpr (Words::kElements == 1) {
    PackRows<Words>(tokens, dim, dtype, row_of, to);
  } else {
    const hn::RebindToUnsigned<F32> du;
    const hn::Rebind<uint16_t, F32> dh;
    HWY_ALIGN float rows[2][kMaxHeadDim / 2];
    const auto element = [&](int64_t r, int64_t d) {
      return hn::PromoteTo(
          du, hn::Load(dh, reinterpret_cast<const uint16_t*>(rows[r]) + d));
    };
    const int64_t padded = RoundUpToLanes(dim);
    for (int64_t i = 0; i < tokens; i += 2) {
      for (int64_t r = 0; r < 2; ++r) {
        if (i + r < tokens) Ahead(i + r, tokens, dim * SizeOf(dtype), row_of);
        LoadWords<Words>(i + r < tokens ? row_of(i + r) : nullptr, dtype, dim,
                         padded / 2, rows[r]);
      }
      for (int64_t d = 0; d < padded; d += kLanes) {
        const auto pair =
            hn::Or(element(0, d), hn::ShiftLeft<16>(element(1, d)));
        hn::Store(hn::BitCast(F32(), pair), F32(), to.row(i / 2) + d);
      }
    }
  }
}

// A scale within +-1 takes no score out of range.
HWY_INLINE bool KeepsRange(float scale) { return -1 <= scale && scale <= 1; }

// Any finite scale is allowed: scores that it takes out of range saturate, for
// infinities would subtract to NaN. NaN stays NaN.
HWY_INLINE void SaturateScores(float scale, int64_t rows, int64_t width,
                               Tile scores) {
  if (KeepsRange(scale)) return;
  const F32 d;
  const Vf most = hn::Set(d, std::numeric_limits<float>::max());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; i += kLanes) {
      float* at = scores.row(r) + i;
      const Vf s = hn::Load(d, at);
      const Vf size =
          hn::IfThenElse(hn::Gt(hn::Abs(s), most), most, hn::Abs(s));
      hn::Store(hn::CopySign(size, s), d, at);
    }
  }
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
  const void* RowOf(const ConstTensorView& view, int64_t lane) const {
    return RowAt(view, sequence_.b(), q_row(lane), head(lane));
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

// Row of a token of K or V: of column `column` of the tile that is `pieces`.
HWY_INLINE const void* KvRow(const Sequence& sequence,
                             const std::vector<Piece>& pieces,
                             ConstTensorView KvSegment::*which, int64_t kv_head,
                             int64_t column) {
  auto piece = pieces.begin();
  while (column >= piece->offset + piece->count) ++piece;
  return RowAt(sequence.kv(piece->segment).*which, sequence.b(),
               piece->first + column - piece->offset, kv_head);
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_BLOCK_INL_H_
