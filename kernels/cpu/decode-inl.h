// Products with K and V where they lie, for a few queries: each element is
// used so little that packing it would take longer. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_DECODE_INL_H_
#undef ATTND_KERNELS_CPU_DECODE_INL_H_
#else
#define ATTND_KERNELS_CPU_DECODE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

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

// factor * q_l . k for two tokens and kQueries queries.
template <class From, int kQueries>
HWY_INLINE void DotTwo(const typename From::T* k0, const typename From::T* k1,
                       int64_t dim, Tile q, float factor, float* s0,
                       float* s1) {
  const F32 d;
  Vf acc0[kQueries], acc1[kQueries];
  for (int l = 0; l < kQueries; ++l) acc0[l] = acc1[l] = hn::Zero(d);
  for (int64_t i = 0; i < dim; i += kLanes) {
    const Vf v0 = From()(k0 + i), v1 = From()(k1 + i);
    for (int l = 0; l < kQueries; ++l) {
      const Vf x = hn::Load(d, q.row(l) + i);
      acc0[l] = hn::MulAdd(v0, x, acc0[l]);
      acc1[l] = hn::MulAdd(v1, x, acc1[l]);
    }
  }
  for (int l = 0; l < kQueries; ++l) {
    s0[l] = factor * hn::GetLane(hn::SumOfLanes(d, acc0[l]));
    s1[l] = factor * hn::GetLane(hn::SumOfLanes(d, acc1[l]));
  }
}

// (E1) of `lanes` queries, rows of q [lanes, head_dim], and the tokens of
// scratch.pieces: scores [tokens, lanes], zeros up to `width`.
template <class From>
HWY_NOINLINE void DotsInPlace(const Scratch& scratch, int64_t kv_head,
                              int64_t lanes, int64_t width, Tile q, Tile scores,
                              Prefetcher& prefetch) {
  const Problem& p = scratch.sequence.problem();
  const auto two = [&](auto queries, int64_t l, const void* k0, const void* k1,
                       float* s0, float* s1) {
    using T = typename From::T;
    DotTwo<From, queries()>(static_cast<const T*>(k0),
                            static_cast<const T*>(k1), p.head_dim,
                            {q.row(l), q.stride}, p.scale, s0 + l, s1 + l);
  };
  float unused[kMostInPlace];
  for (const Piece& piece : scratch.pieces) {
    const ConstTensorView& k = scratch.sequence.kv(piece.segment).k;
    for (int64_t t = 0; t < piece.count; t += 2) {
      prefetch.Step();
      const int64_t token = piece.first + t;
      const bool both = t + 1 < piece.count;
      const void* k0 = RowAt(k, scratch.sequence.b(), token, kv_head);
      const void* k1 =
          both ? RowAt(k, scratch.sequence.b(), token + 1, kv_head) : k0;
      float* s0 = scores.row(piece.offset + t);
      float* s1 = both ? s0 + scores.stride : unused;
      int64_t l = 0;
      for (; l + 4 <= lanes; l += 4) {
        two(std::integral_constant<int, 4>(), l, k0, k1, s0, s1);
      }
      for (; l < lanes; ++l) {
        two(std::integral_constant<int, 1>(), l, k0, k1, s0, s1);
      }
      std::fill(s0 + lanes, s0 + width, 0.0f);
      if (both) std::fill(s1 + lanes, s1 + width, 0.0f);
    }
  }
}

// (E9): acc [lanes, value_dim] = row_scale * acc + P V for the tokens of
// scratch.pieces, or P V alone without row_scale.
template <class From>
HWY_NOINLINE void AddInPlace(const Scratch& scratch, int64_t kv_head,
                             int64_t lanes, Tile p, const float* row_scale,
                             Tile acc) {
  GemmOutput out{.row_scale = row_scale};
  for (const Piece& piece : scratch.pieces) {
    const ConstTensorView& v = scratch.sequence.kv(piece.segment).v;
    const void* first = RowAt(v, scratch.sequence.b(), piece.first, kv_head);
    GemmWith<F32Words, AOrder::kColumnMajor, From>(
        lanes, scratch.sequence.problem().value_dim, piece.count,
        {p.row(piece.offset), p.stride},
        static_cast<const typename From::T*>(first), v.token_stride, acc, out);
    out = {.accumulate = true};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_DECODE_INL_H_
