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
#include "kernels/cpu/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd {
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

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_SOFTMAX_INL_H_
