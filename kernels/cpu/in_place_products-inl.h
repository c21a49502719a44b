// Products with K and V where they lie, for a few queries: each element is
// used so little that packing it would take longer. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_IN_PLACE_PRODUCTS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_IN_PLACE_PRODUCTS_INL_H_
#undef ATTND_KERNELS_CPU_IN_PLACE_PRODUCTS_INL_H_
#else
#define ATTND_KERNELS_CPU_IN_PLACE_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/score_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
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

// Whether dots convert two vectors of K at once: of a word of two bf16 each
// half is an f32 but for a shift or a mask. Q then lies in the same order, of
// each two vectors' elements first the even ones.
template <class From>
HWY_INLINE bool SplitsWords(int64_t dim) {
  return std::is_same_v<From, FromBF16> && dim % (2 * kLanes) == 0;
}

// Packs queries for dots with K where it lies: q [queries, dim].
template <class RowOf>
HWY_INLINE void PackQueries(int64_t queries, int64_t dim, DType dtype,
                            RowOf row_of, Tile q) {
  PackRows<F32Words>(queries, dim, dtype, row_of, q);
  if (dtype != DType::kBF16 || !SplitsWords<FromBF16>(dim)) return;
  for (int64_t l = 0; l < queries; ++l) {
    for (float* at = q.row(l); at < q.row(l) + dim; at += 2 * kLanes) {
      float pairs[2 * kLanes];
      std::copy_n(at, 2 * kLanes, pairs);
      for (int64_t i = 0; i < kLanes; ++i) {
        at[i] = pairs[2 * i];
        at[kLanes + i] = pairs[2 * i + 1];
      }
    }
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

// (E1) of kQueries queries, packed in q [queries, dim], and kDots / kQueries
// tokens of `k` from `t` on, to rows of scores [tokens, queries]. Beyond the
// last token of the tile that once more, and its scores go nowhere.
template <class From, int kQueries>
HWY_INLINE void DotTokens(const TokenRows& k, int64_t t, int64_t kv_head,
                          int64_t dim, float scale, Tile q, Tile scores) {
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
  const auto add = [&](int64_t i, auto vector_of) {
    Vf x[kQueries];
    for (int l = 0; l < kQueries; ++l) x[l] = hn::Load(d, q.row(l) + i);
    for (int r = 0; r < kTokens; ++r) {
      const Vf y = vector_of(r);
      for (int l = 0; l < kQueries; ++l) {
        acc[r * kQueries + l] = hn::MulAdd(x[l], y, acc[r * kQueries + l]);
      }
    }
  };
  if (SplitsWords<From>(dim)) {
    const hn::RebindToUnsigned<F32> du;
    for (int64_t i = 0; i < dim; i += 2 * kLanes) {
      const auto words = [&](int r) {
        return hn::LoadU(du, reinterpret_cast<const uint32_t*>(rows[r] + i));
      };
      add(i, [&](int r) {
        AskFor(rows[r], i, ahead[r]);
        return hn::BitCast(d, hn::ShiftLeft<16>(words(r)));
      });
      add(i + kLanes, [&](int r) {
        return hn::BitCast(d, hn::And(words(r), hn::Set(du, 0xFFFF0000u)));
      });
    }
  } else {
    for (int64_t i = 0; i < dim; i += kLanes) {
      add(i, [&](int r) {
        AskFor(rows[r], i, ahead[r]);
        return From()(rows[r] + i);
      });
    }
  }
  HWY_ALIGN float dots[kDots];
  for (int i = 0; i < kDots; i += kLanes) {
    const Vf s = hn::Mul(SumsOfEach(acc + i), hn::Set(d, scale));
    hn::Store(Saturate(d, s), d, dots + i);
  }
  for (int i = 0; i < kTokens && t + i < k.tokens(); ++i) {
    std::copy_n(dots + int64_t{i} * kQueries, kQueries, scores.row(t + i));
  }
}

// Tokens whose dots with all heads' queries are next to one another in time.
HWY_INLINE int64_t DotGroup(int64_t lanes) {
  return lanes % 4 == 0 ? kDots / 4 : kDots;
}

// (E1) of `lanes` queries of a kv head and DotGroup(lanes) tokens of `k` from
// `t` on: scores [tokens, lanes].
template <class From>
HWY_INLINE void DotQueries(const TokenRows& k, int64_t t, int64_t kv_head,
                           int64_t lanes, int64_t dim, float scale, Tile q,
                           Tile scores) {
  const int64_t end = std::min(t + DotGroup(lanes), k.tokens());
  int64_t l = 0;
  for (; l + 4 <= lanes; l += 4) {
    for (int64_t i = t; i < end; i += kDots / 4) {
      DotTokens<From, 4>(k, i, kv_head, dim, scale, {q.row(l), q.stride},
                         scores.from(l));
    }
  }
  for (; l < lanes; ++l) {
    DotTokens<From, 1>(k, t, kv_head, dim, scale, {q.row(l), q.stride},
                       scores.from(l));
  }
}

// What O was before some tokens are added to it.
enum class Old { kNone, kKept, kRescaled };

// What is added to O of some queries of a kv head: P V of some tokens, (E9).
struct Addition {
  const TokenRows& v;
  int64_t first, end;  // the tokens, of a tile: [first, end)
  int64_t kv_head;
  Tile p;  // [tokens of the tile, queries]
  Old old;
  const float* rescale;  // [queries], what O is multiplied by if kRescaled

  // What is added to O of the queries from `query` on.
  Addition from(int64_t query) const {
    return {v, first, end, kv_head, p.from(query), old, rescale + query};
  }
};

// Adds to O of kQueries queries, acc [queries, value_dim], in kVectors vectors
// from `column` on.
template <class From, int kQueries, int kVectors>
HWY_INLINE void AddTokens(const Addition& x, int64_t column, Tile acc) {
  using T = typename From::T;
  const F32 d;
  Vf sum[kQueries][kVectors];
  for (int l = 0; l < kQueries; ++l) {
    const Vf factor = hn::Set(d, x.old == Old::kRescaled ? x.rescale[l] : 1.0f);
    for (int i = 0; i < kVectors; ++i) {
      sum[l][i] =
          x.old == Old::kNone
              ? hn::Zero(d)
              : hn::Mul(hn::Load(d, acc.row(l) + column + i * kLanes), factor);
    }
  }
  for (int64_t t = x.first; t < x.end; ++t) {
    const T* row = x.v[t].of<T>(x.kv_head) + column;
    Vf y[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      AskFor(row, i * kLanes, x.v[t].ahead_bytes);
      y[i] = From()(row + i * kLanes);
    }
    for (int l = 0; l < kQueries; ++l) {
      const Vf w = hn::Set(d, x.p.row(t)[l]);
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

// The same of all `queries` of the kv head and all `dim` columns of V.
template <class From>
HWY_INLINE void AddQueries(const Addition& x, int64_t queries, int64_t dim,
                           Tile acc) {
  const auto add = [&](auto count, int64_t l) {
    ForEachPanel(dim, [&](int64_t column, int64_t vectors) {
      WithVectors(vectors, [&](auto width) {
        AddTokens<From, count(), width()>(x.from(l), column,
                                          {acc.row(l), acc.stride});
      });
    });
  };
  int64_t l = 0;
  for (; l + 4 <= queries; l += 4) add(std::integral_constant<int, 4>(), l);
  for (; l < queries; ++l) add(std::integral_constant<int, 1>(), l);
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_IN_PLACE_PRODUCTS_INL_H_
