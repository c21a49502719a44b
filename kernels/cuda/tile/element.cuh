#ifndef ATTND_KERNELS_CUDA_TILE_ELEMENT_CUH_
#define ATTND_KERNELS_CUDA_TILE_ELEMENT_CUH_

// Converts elements of any dtype to and from f32. Each conversion rounds once,
// to nearest even.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/attention.h"

namespace attnd::cuda {

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(__half x) { return __half2float(x); }
__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ T FromFloat(float x);
template <>
__device__ inline float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ inline __half FromFloat<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Element `index` of an array whose type is known at run time only.
__device__ inline float LoadAny(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[index];
    case DType::kF16:
      return ToFloat(static_cast<const __half*>(data)[index]);
    case DType::kBF16:
      return ToFloat(static_cast<const __nv_bfloat16*>(data)[index]);
  }
  return 0.0f;
}

// Stores `value`, rounded to `dtype`, as element `index` of such an array.
__device__ inline void StoreAny(void* data, DType dtype, int64_t index,
                                float value) {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(data)[index] = value;
      return;
    case DType::kF16:
      static_cast<__half*>(data)[index] = FromFloat<__half>(value);
      return;
    case DType::kBF16:
      static_cast<__nv_bfloat16*>(data)[index] =
          FromFloat<__nv_bfloat16>(value);
      return;
  }
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_ELEMENT_CUH_
