#ifndef ATTND_KERNELS_CUDA_TILE_SCORE_CUH_
#define ATTND_KERNELS_CUDA_TILE_SCORE_CUH_

// From a product q . k to a score: (E1) and (E2) in kernels/README.md.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/tile/element.cuh"

namespace attnd::cuda {

inline constexpr float kLog2e = 1.44269504088896341f;

// x, or the largest f32 of its sign if it has overflowed: of a score of +inf
// softmax would make NaN.
__device__ inline float WithinRange(float x) {
  return isinf(x) ? copysignf(FLT_MAX, x) : x;
}
// x + bias, which is infinite only if the bias is.
__device__ inline float AddBias(float x, float bias) {
  const float sum = x + bias;
  return isinf(bias) ? sum : WithinRange(sum);
}

// How products q . k of one sequence and q head become scores.
struct ScoreRule {
  float scale;
  float softcap;        // 0: none
  const void* bias;     // [q_len, columns of all segments], or null
  int64_t bias_stride;  // from row to row
  DType bias_dtype;

  // Whether scores are plain: products times a scale that softmax can multiply
  // by itself. They are not if there is a softcap or a bias, nor if the scale
  // is negative, 0 or so far out that -inf might become NaN.
  __device__ bool plain() const {
    return softcap == 0.0f && bias == nullptr && scale >= 0x1p-40f &&
           scale <= 0x1p40f;
  }
  // What softmax multiplies what it gets by. If `as_plain` it gets products,
  // and the factor brings them to scores in units of log2; what overflows then
  // is computed again with `as_plain` false. Else it gets scores in natural
  // units, from Natural.
  __device__ float factor(bool as_plain) const {
    return as_plain ? scale * kLog2e : 1.0f;
  }
  // What brings the same to scores in natural units.
  __device__ float natural_factor(bool as_plain) const {
    return as_plain ? scale : 1.0f;
  }

  // The score, (E2), in natural units. `bias_column` counts through all
  // segments. Each step is rounded by itself: a compiler must not fuse in one
  // kernel what it does not in another, as backward needs forward's scores.
  __device__ float Natural(float product, int64_t row,
                           int64_t bias_column) const {
    float x = WithinRange(__fmul_rn(scale, product));
    if (softcap != 0.0f) x = __fmul_rn(softcap, tanhf(x / softcap));
    if (bias != nullptr) {
      x = AddBias(x,
                  LoadAny(bias, bias_dtype, row * bias_stride + bias_column));
    }
    return x;
  }

  // The score's derivative by scale * product: the factor of dS in (E16).
  __device__ float Slope(float product) const {
    if (softcap == 0.0f) return 1.0f;
    // 1 - tanh^2, without its cancellation.
    const float e = expf(-2.0f * fabsf(scale * product / softcap));
    return 4.0f * e / ((1.0f + e) * (1.0f + e));
  }
};

// Whether q . k of elements T can leave f32's range.
template <class T>
inline constexpr bool kProductsOverflow = !std::is_same_v<T, __half>;

// Whether an LSE, in natural units, is huge; +inf, of a row without P, is not.
// Backward of 16-bit inputs brings both LSE and scores to units of log2, and
// each of these roundings moves P's exponent by up to 2^-24 of |LSE|. Up to
// 2^11 that is less than f16's own rounding of P; rows with a larger |LSE| are
// computed slowly, in natural units. The size of LSE decides, as no score
// exceeds its row's LSE, and P of one far below is 0.
__device__ inline bool IsHuge(float lse) {
  return !(fabsf(lse) < 0x1p11f) && lse != INFINITY;
}
// Stands for a huge LSE where one in units of log2 is expected: subtracting it
// changes no score, and no other row has it.
inline constexpr float kHugeLse = 0x1p-149f;

// log2 of P, (E12), from a score and its row's LSE in natural units. A score
// exceeds its row's LSE only because forward and backward round differently.
// The excess may be of any size, and P would be, too: P is 1 then. NaN stays.
__device__ inline float Log2P(float score, float lse) {
  const float below = score - lse;
  return (below > 0.0f ? 0.0f : below) * kLog2e;
}

// `score`, but at most its row's LSE: the same for kernels that exponentiate to
// the base e.
__device__ inline float AtMostLse(float score, float lse) {
  return score > lse ? lse : score;
}

// The rule for sequence b and q head h.
__device__ inline ScoreRule MakeScoreRule(const DeviceProblem& p, int64_t b,
                                          int64_t h) {
  ScoreRule rule{p.scale, p.softcap, nullptr, p.bias.row_stride, p.bias.dtype};
  if (p.bias.data != nullptr) {
    const int64_t at = b * p.bias.batch_stride + h * p.bias.head_stride;
    rule.bias = static_cast<const std::byte*>(p.bias.data) +
                at * (p.bias.dtype == DType::kF32 ? 4 : 2);
  }
  return rule;
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_SCORE_CUH_
