// Products with K and V where they lie, for a few queries: each element is
// used so little that packing it would take longer. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_DECODE_INL_H_
#undef ATTND_KERNELS_CPU_DECODE_INL_H_
#else
#define ATTND_KERNELS_CPU_DECODE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// More queries are better served by packing: what is read where it lies is
// converted for each 4 of them anew.
inline constexpr int64_t kMostInPlace = 8;

// Whether rows can be read in whole vectors.
HWY_INLINE bool ReadsInPlace(const Problem& p, int64_t lanes) {
  return lanes <= kMostInPlace && p.head_dim % kLanes == 0 &&
         p.value_dim % kLanes == 0;
}

// Calls run(Words()) for what dots with K are made of: words of bf16 where they
// can be multiplied as they lie.
template <class Run>
HWY_INLINE void WithDotWords(const Problem& p, Run run) {
  if (p.head_dim % (2 * kLanes) != 0) return run(F32Words());
  WithWords(p, run);
}

// A vector of words of a row whose elements From converts to f32.
template <class Words, class From>
HWY_INLINE Vf WordsAt(const typename From::T* row) {
  if constexpr (Words::kElements == 1) {
    return From()(row);
  } else {
    return hn::LoadU(F32(), reinterpret_cast<const float*>(row));
  }
}

// Where a token's row of K or of V begins, of any kv head.
struct TokenRow {
  const std::byte* first;  // of the first kv head
  int64_t head_bytes;
  int64_t ahead_bytes;  // from there to the row to ask for when it is used

  template <class T>
  const T* of(int64_t kv_head) const {
    return reinterpret_cast<const T*>(first + kv_head * head_bytes);
  }
};

// Asks for what is used soon, into the L2 cache: the L1 cache is too small for
// all that is on its way. Once for each cache line of a row, of which `at`
// elements come before.
template <class T>
HWY_INLINE void AskFor(const T* row, int64_t at, int64_t bytes_ahead) {
  constexpr int64_t kLine = 64;  // bytes
  if (at * static_cast<int64_t>(sizeof(T)) % kLine != 0) return;
  __builtin_prefetch(reinterpret_cast<const std::byte*>(row + at) + bytes_ahead,
                     /*rw=*/0, /*locality=*/2);
}

// The rows of a tile's tokens, and after them those of the next tile, which are
// asked for while others are used: memory is read in the order in which it
// lies, always about as far ahead.
class TokenRows {
 public:
  // `which` of `pieces` and of `next`.
  TokenRows(const Sequence& sequence, const std::vector<Piece>& pieces,
            const std::vector<Piece>& next, ConstTensorView KvSegment::*which) {
    Append(sequence, pieces, which);
    tokens_ = count_;
    Append(sequence, next, which);
    const ConstTensorView& view = sequence.kv(pieces.front().segment).*which;
    const int64_t token_bytes =
        std::max<int64_t>(1, view.token_stride * SizeOf(view.dtype));
    const int64_t ahead = std::clamp<int64_t>(kAheadBytes / token_bytes,
                                              kLeastAhead, kTileTokens);
    for (int64_t t = 0; t < tokens_; ++t) {
      const TokenRow& later = rows_[std::min(t + ahead, count_ - 1)];
      rows_[t].ahead_bytes = later.first - rows_[t].first;
    }
  }

  int64_t tokens() const { return tokens_; }  // of the tile
  const TokenRow& operator[](int64_t t) const { return rows_[t]; }

 private:
  static constexpr int64_t kAheadBytes = 48 << 10, kLeastAhead = 8;

  void Append(const Sequence& sequence, const std::vector<Piece>& pieces,
              ConstTensorView KvSegment::*which) {
    for (const Piece& piece : pieces) {
      const ConstTensorView& view = sequence.kv(piece.segment).*which;
      const std::byte* row = RowAt(view, sequence.b(), piece.first, 0);
      for (int64_t t = 0; t < piece.count; ++t) {
        rows_[count_++] = {row + t * view.token_stride * SizeOf(view.dtype),
                           view.head_stride * SizeOf(view.dtype), 0};
      }
    }
  }

  int64_t tokens_ = 0, count_ = 0;
  TokenRow rows_[2 * kTileTokens];
};

// Sums that grow at once: half of the registers.
inline constexpr int kDots = kMaxVectors == 4 ? 16 : 8;

#if HWY_TARGET != HWY_SCALAR
// In each block of four lanes, the sums of those of v[0] to v[3].
HWY_INLINE Vf SumsInBlocks(const Vf* v) {
  const F32 d;
  const hn::Repartition<uint64_t, F32> pairs;
  const auto two = [&](Vf a, Vf b) {  // a0 + a2, b0 + b2, a1 + a3, b1 + b3
    return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, a, b),
                                      hn::InterleaveUpper(d, a, b)));
  };
  const auto ab = two(v[0], v[1]), cd = two(v[2], v[3]);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab, cd)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, ab, cd)));
}
#endif

// In lane i the sum of all lanes of v[i], each in the same order: a transpose
// that adds on the way.
HWY_INLINE Vf SumsOfEach(const Vf* v) {
#if HWY_TARGET == HWY_SCALAR
  return v[0];
#else
  if constexpr (kLanes == 4) {
    return SumsInBlocks(v);
  } else {
    const F32 d;
    // The lower and the upper half of a, then of b, added up.
    const auto fold = [&](Vf a, Vf b) {
      return hn::Add(hn::ConcatLowerLower(d, b, a),
                     hn::ConcatUpperUpper(d, b, a));
    };
    if constexpr (kLanes == 8) {
      return fold(SumsInBlocks(v), SumsInBlocks(v + 4));
    } else {
      const Vf a = fold(SumsInBlocks(v), SumsInBlocks(v + 8));
      const Vf b = fold(SumsInBlocks(v + 4), SumsInBlocks(v + 12));
      return hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a),
                     hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)));
    }
  }
#endif
}

// (E1) of kQueries queries, rows of q [queries, words], and kDots / kQueries
// tokens of `k` from `t` on, to rows of scores [tokens, queries]. Beyond the
// last token of the tile that once more, and its scores go nowhere.
template <class Words, class From, int kQueries>
HWY_INLINE void DotTokens(const TokenRows& k, int64_t t, int64_t kv_head,
                          int64_t words, float scale, Tile q, Tile scores) {
  using T = typename From::T;
  constexpr int kTokens = kDots / kQueries;
  const F32 d;
  const T* rows[kTokens];
  int64_t ahead[kTokens];
  for (int i = 0; i < kTokens; ++i) {
    const TokenRow& row = k[std::min(t + i, k.tokens() - 1)];
    rows[i] = row.of<T>(kv_head);
    ahead[i] = row.ahead_bytes;
  }
  Vf acc[kDots];
  for (int i = 0; i < kDots; ++i) acc[i] = hn::Zero(d);
  for (int64_t i = 0; i < words; i += kLanes) {
    Vf x[kQueries];
    for (int l = 0; l < kQueries; ++l) x[l] = hn::Load(d, q.row(l) + i);
    for (int r = 0; r < kTokens; ++r) {
      const int64_t at = i * Words::kElements;
      AskFor(rows[r], at, ahead[r]);
      const Vf y = WordsAt<Words, From>(rows[r] + at);
      for (int l = 0; l < kQueries; ++l) {
        acc[r * kQueries + l] = Words::MulAdd(x[l], y, acc[r * kQueries + l]);
      }
    }
  }
  HWY_ALIGN float dots[kDots];
  for (int i = 0; i < kDots; i += kLanes) {
    hn::Store(hn::Mul(SumsOfEach(acc + i), hn::Set(d, scale)), d, dots + i);
  }
  for (int i = 0; i < kTokens && t + i < k.tokens(); ++i) {
    std::copy_n(dots + i * kQueries, kQueries, scores.row(t + i));
  }
}

// Tokens whose dots with all heads' queries are next to one another in time.
HWY_INLINE int64_t DotGroup(int64_t lanes) {
  return lanes % 4 == 0 ? kDots / 4 : kDots;
}

// (E1) of `lanes` queries of a kv head and DotGroup(lanes) tokens of `k` from
// `t` on: scores [tokens, lanes].
template <class Words, class From>
HWY_INLINE void DotQueries(const TokenRows& k, int64_t t, int64_t kv_head,
                           int64_t lanes, int64_t words, float scale, Tile q,
                           Tile scores) {
  const int64_t end = std::min(t + DotGroup(lanes), k.tokens());
  int64_t l = 0;
  for (; l + 4 <= lanes; l += 4) {
    for (int64_t i = t; i < end; i += kDots / 4) {
      DotTokens<Words, From, 4>(k, i, kv_head, words, scale,
                                {q.row(l), q.stride}, scores.from(l));
    }
  }
  for (; l < lanes; ++l) {
    DotTokens<Words, From, 1>(k, t, kv_head, words, scale, {q.row(l), q.stride},
                              scores.from(l));
  }
}

// What O was before some tokens are added to it.
enum class Old { kNone, kKept, kRescaled };

// (E9) for kQueries queries and kVectors vectors of V from `column` on: P V of
// tokens [t, end) is added to acc, which may be rescaled by query first.
template <class From, int kQueries, int kVectors>
HWY_INLINE void AddTokens(const TokenRows& v, int64_t t, int64_t end,
                          int64_t kv_head, int64_t column, Tile p, Old old,
                          const float* rescale, Tile acc) {
  using T = typename From::T;
  const F32 d;
  Vf sum[kQueries][kVectors];
  for (int l = 0; l < kQueries; ++l) {
    const Vf factor = hn::Set(d, old == Old::kRescaled ? rescale[l] : 1.0f);
    for (int i = 0; i < kVectors; ++i) {
      sum[l][i] =
          old == Old::kNone
              ? hn::Zero(d)
              : hn::Mul(hn::Load(d, acc.row(l) + column + i * kLanes), factor);
    }
  }
  for (; t < end; ++t) {
    const T* row = v[t].of<T>(kv_head) + column;
    Vf y[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      AskFor(row, i * kLanes, v[t].ahead_bytes);
      y[i] = From()(row + i * kLanes);
    }
    for (int l = 0; l < kQueries; ++l) {
      const Vf w = hn::Set(d, p.row(t)[l]);
      for (int i = 0; i < kVectors; ++i) {
        sum[l][i] = hn::MulAdd(w, y[i], sum[l][i]);
      }
    }
  }
  for (int l = 0; l < kQueries; ++l) {
    for (int i = 0; i < kVectors; ++i) {
      hn::Store(sum[l][i], d, acc.row(l) + column + i * kLanes);
    }
  }
}

// The same for `lanes` queries of a kv head and all of V: acc [lanes,
// value_dim].
template <class From>
HWY_INLINE void AddQueries(const TokenRows& v, int64_t t, int64_t end,
                           int64_t kv_head, int64_t lanes, int64_t dim, Tile p,
                           Old old, const float* rescale, Tile acc) {
  const auto add = [&](auto queries, int64_t l) {
    ForEachPanel(dim, [&](int64_t column, int64_t vectors) {
      WithVectors(vectors, [&](auto width) {
        AddTokens<From, queries(), width()>(v, t, end, kv_head, column,
                                            p.from(l), old, rescale + l,
                                            {acc.row(l), acc.stride});
      });
    });
  };
  int64_t l = 0;
  for (; l + 4 <= lanes; l += 4) add(std::integral_constant<int, 4>(), l);
  for (; l < lanes; ++l) add(std::integral_constant<int, 1>(), l);
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_DECODE_INL_H_
