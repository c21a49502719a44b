#ifndef ATTND_KERNELS_CUDA_TILE_ROW_CUH_
#define ATTND_KERNELS_CUDA_TILE_ROW_CUH_

// Rows of accumulators, the columns of each of which four neighbouring lanes
// share (a quad), as mma and wgmma spread them; and rows of O and LSE in
// memory.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch/descriptor.h"

namespace attnd::cuda {

// The largest, and the sum, of the values that the four lanes of a row hold.
// All lanes of the warp call these, and each gets its row's result.
__device__ inline float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ inline float QuadSum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

inline constexpr float kLn2 = 0.693147180559945309f;

// (E7): LSE of a row, -inf if it saw nothing and therefore has l = 0.
__device__ inline float LogSumExp(float m, float l) {
  return l == 0.0f ? -INFINITY : m + logf(l);
}

// c m - base, where base is c m rounded to f32. Softmax computes P as 2^(c s -
// base), so its l is 2^(c m - base) times the sum of 2^(c (s - m)). Where
// scores are large that is a good deal.
__device__ inline float LostOfBase(float m, float c) {
  return fmaf(m, c, -__fmul_rn(m, c));
}

// Row `row` of O, Out[value_dim], for sequence b and q head h.
template <class Out>
__device__ Out* OutputRow(const DeviceProblem& p, int64_t b, int64_t h,
                          int64_t row) {
  return static_cast<Out*>(p.o.data) + b * p.o.batch_stride +
         h * p.o.head_stride + row * p.o.token_stride;
}

// Stores LSE of row `row` for sequence b and q head h.
__device__ inline void StoreLse(const DeviceProblem& p, int64_t b, int64_t h,
                                int64_t row, float lse) {
  p.lse.data[b * p.lse.batch_stride + h * p.lse.head_stride + row] = lse;
}

// Whether rows of T that start at `data` and lie `stride` elements apart can be
// read and written 16 bytes at a time.
template <class T>
__device__ bool IsAligned(const T* data, int64_t stride) {
  return ((reinterpret_cast<uintptr_t>(data) |
           static_cast<uintptr_t>(stride * sizeof(T))) &
          15) == 0;
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_ROW_CUH_
