// Online softmax of tiles whose lanes are queries. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_SOFTMAX_INL_H_
#undef ATTND_KERNELS_CPU_SOFTMAX_INL_H_
#else
#define ATTND_KERNELS_CPU_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/score_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The state of online softmax (E8), one query to a lane.
struct Softmax {
  float* max;      // of the scores so far, -inf at first
  float* sum;      // of exp(score - max)
  float* rescale;  // exp(old max - new max) of the last tile

  void Clear(int64_t width) const {
    std::fill(max, max + width, -kInf);
    std::fill(sum, sum + width, 0.0f);
  }
};

// A query that has seen nothing keeps a maximum of -inf, but that is not
// subtracted: -inf minus -inf is NaN.
HWY_INLINE Vf BaseOf(Vf max) {
  return hn::IfThenZeroElse(hn::Eq(max, hn::Set(F32(), -kInf)), max);
}

// kVectors vectors of scores [tokens, ..] become exp(score - max) in place, as
// words along the tokens: (E8).
template <class Words, int kVectors>
HWY_INLINE void UpdateSoftmaxLine(int64_t tokens, Tile scores,
                                  const Softmax& state) {
  const F32 d;
  Vf max[kVectors], base[kVectors], sum[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    max[v] = hn::Load(d, state.max + v * kLanes);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      max[v] = hn::Max(max[v], hn::Load(d, scores.row(t) + v * kLanes));
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    base[v] = BaseOf(max[v]);
    sum[v] = hn::Zero(d);
  }
  const auto exp = [&](int64_t t, int v) {
    const Vf p = ExpNonPositive(
        d, hn::Sub(hn::Load(d, scores.row(t) + v * kLanes), base[v]));
    sum[v] = hn::Add(sum[v], p);
    return p;
  };
  for (int64_t t = 0; t < tokens; t += Words::kElements) {
    for (int v = 0; v < kVectors; ++v) {
      Vf p = exp(t, v);
      if constexpr (Words::kElements == 2) {
        p = Words::Pair(p, t + 1 < tokens ? exp(t + 1, v) : hn::Zero(d));
      }
      hn::Store(p, d, scores.row(t / Words::kElements) + v * kLanes);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const int64_t i = v * kLanes;
    const Vf rescale =
        ExpNonPositive(d, hn::Sub(hn::Load(d, state.max + i), base[v]));
    hn::Store(max[v], d, state.max + i);
    hn::Store(rescale, d, state.rescale + i);
    hn::Store(hn::MulAdd(hn::Load(d, state.sum + i), rescale, sum[v]), d,
              state.sum + i);
  }
}

// The same for columns [first, first + width) of scores [tokens, ..], a cache
// line at a time.
template <class Words>
HWY_INLINE void UpdateSoftmax(int64_t tokens, int64_t first, int64_t width,
                              Tile scores, const Softmax& state) {
  constexpr int kLine = kLanes < 16 ? 2 : 1;  // vectors
  const auto update = [&](auto vectors, int64_t i) {
    UpdateSoftmaxLine<Words, vectors()>(
        tokens, scores.from(i),
        {state.max + i, state.sum + i, state.rescale + i});
  };
  int64_t i = first;
  for (; i + kLine * kLanes <= first + width; i += kLine * kLanes) {
    update(std::integral_constant<int, kLine>(), i);
  }
  for (; i < first + width; i += kLanes) {
    update(std::integral_constant<int, 1>(), i);
  }
}

// The same for a few queries, `lanes` of which kLanes is a multiple: scores
// [tokens, lanes] lie without gaps, so that a vector holds several tokens. Up
// to the next multiple of kLanes they are overwritten.
HWY_INLINE void UpdateDenseSoftmax(int64_t tokens, int64_t lanes, float* scores,
                                   const Softmax& state) {
  const F32 d;
  HWY_ALIGN float max[kLanes], sum[kLanes];
  const int64_t mask = lanes - 1;  // a power of two, as kLanes is
  const auto for_each = [mask](auto run) {
    for (int64_t i = 0; i < kLanes; ++i) run(i, i & mask);
  };
  const int64_t count = tokens * lanes;
  const int64_t padded = RoundUpToLanes(count);
  std::fill(scores + count, scores + padded, -kInf);
  for_each([&](int64_t i, int64_t l) { max[i] = state.max[l]; });
  Vf most = hn::Load(d, max);
  for (int64_t i = 0; i < padded; i += kLanes) {
    most = hn::Max(most, hn::Load(d, scores + i));
  }
  hn::Store(most, d, max);
  for (int64_t i = lanes; i < kLanes; ++i) {
    max[i & mask] = std::max(max[i & mask], max[i]);
  }
  for_each([&](int64_t i, int64_t l) { max[i] = max[l]; });
  const Vf base = BaseOf(hn::Load(d, max));
  Vf total = hn::Zero(d);
  for (int64_t i = 0; i < padded; i += kLanes) {
    const Vf p = ExpNonPositive(d, hn::Sub(hn::Load(d, scores + i), base));
    total = hn::Add(total, p);
    hn::Store(p, d, scores + i);
  }
  hn::Store(total, d, sum);
  for (int64_t i = lanes; i < kLanes; ++i) sum[i & mask] += sum[i];
  hn::Store(ExpNonPositive(d, hn::Sub(hn::Load(d, state.max), base)), d,
            state.rescale);
  for (int64_t l = 0; l < lanes; ++l) {
    state.max[l] = max[l];
    state.sum[l] = state.sum[l] * state.rescale[l] + sum[l];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_SOFTMAX_INL_H_
