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

// What leaves f32's range, as a product or scaled, is the largest of it: +inf
// would make NaN of a softmax.
__device__ inline float WithinRange(float x) {
  return isinf(x) ? copysignf(FLT_MAX, x) : x;
}
// An infinite bias stays.
__device__ inline float AddBias(float x, float bias) {
  const float sum = x + bias;
  return isinf(bias) ? sum : WithinRange(sum);
}

// What becomes of the products of a block of rows.
struct ScoreRule {
  float scale;
  float softcap;     // 0: none
  const void* bias;  // of the block's sequence and head at row 0, or null
  int64_t bias_stride;
  DType bias_dtype;

  // Softmax multiplies by the scale itself, unless more is done to a score, or
  // the scale is negative, 0 or so far out that -inf might become NaN.
  __device__ bool plain() const {
    return softcap == 0.0f && bias == nullptr && scale >= 0x1p-40f &&
           scale <= 0x1p40f;
  }
  // What softmax is to multiply scores by, for units of log2. Scores that
  // overflow then are to be found again as if the rule were not plain, in
  // natural units.
  __device__ float factor(bool as_plain) const {
    return as_plain ? scale * kLog2e : 1.0f;
  }
  // The same for natural units.
  __device__ float natural_factor(bool as_plain) const {
    return as_plain ? scale : 1.0f;
  }

  // The score, (E2). Each step is rounded: one kernel must not fuse what
  // another does not.
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

  // How much the score follows scale * product, (E16).
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

// Backward of 16-bit inputs brings both LSE and the factor of scores to units
// of log2, of which each rounding is up to 2^-24 of LSE. Up to here they are
// less than f16's own rounding of P; rows beyond, whose LSE are huge, are found
// slowly, in natural units. No score exceeds its row's LSE, and what is far
// below has a P of 0.
__device__ inline bool IsHuge(float lse) {
  return !(fabsf(lse) < 0x1p11f) && lse != INFINITY;
}
// Stands for such a row's LSE in units of log2: nothing beside any score, and
// no LSE.
inline constexpr float kHugeLse = 0x1p-149f;

// The exponent, to base 2, of P of a score, (E12), in natural units. No score
// exceeds its LSE, but what forward and backward round differently may be of
// any size, and P would be, too. NaN stays.
__device__ inline float Log2P(float score, float lse) {
  const float below = score - lse;
  return (below > 0.0f ? 0.0f : below) * kLog2e;
}

// `score`, or the row's LSE if that is below it: the same for other bases.
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
