#ifndef ATTND_KERNELS_CUDA_SM80_SCORE_CUH_
#define ATTND_KERNELS_CUDA_SM80_SCORE_CUH_

// From a product q . k to a score: (E1) and (E2) in kernels/README.md.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>
#include <cstdint>

#include "kernels/cuda/descriptor.h"

namespace attnd::cuda::sm80 {

inline constexpr float kLog2e = 1.44269504088896341f;

// What becomes of the products of a block of rows.
struct ScoreRule {
  float scale;
  float softcap;     // 0: none
  const void* bias;  // of the block's sequence and head at row 0, or null
  int64_t bias_stride;
  DType bias_dtype;

  // Softmax multiplies by the scale itself, unless more is done to a score, or
  // the scale is one with which that could turn -inf to NaN or overflow.
  __device__ bool plain() const {
    return softcap == 0.0f && bias == nullptr && scale >= 0x1p-40f &&
           scale <= 0x1p40f;
  }
  // What softmax is to multiply scores by, for units of log2.
  __device__ float factor() const { return plain() ? scale * kLog2e : 1.0f; }

  // The score, (E2).
  __device__ float Natural(float product, int64_t row,
                           int64_t bias_column) const {
    float x = scale * product;
    // Out of f32's range, the largest of it: +inf would make NaN of a softmax.
    if (isinf(x)) x = copysignf(FLT_MAX, x);
    if (softcap != 0.0f) x = softcap * tanhf(x / softcap);
    if (bias != nullptr) x += Bias(row * bias_stride + bias_column);
    return x;
  }
  // The same in units of log2.
  __device__ float Log2(float product, int64_t row, int64_t bias_column) const {
    const float x = Natural(product, row, bias_column);
    const float units = x * kLog2e;
    return isinf(units) && !isinf(x) ? copysignf(FLT_MAX, x) : units;
  }

 private:
  __device__ float Bias(int64_t at) const {
    switch (bias_dtype) {
      case DType::kF32:
        return static_cast<const float*>(bias)[at];
      case DType::kF16:
        return __half2float(static_cast<const __half*>(bias)[at]);
      case DType::kBF16:
        return __bfloat162float(static_cast<const __nv_bfloat16*>(bias)[at]);
    }
    return 0.0f;
  }
};

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

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_SCORE_CUH_
