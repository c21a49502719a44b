#ifndef ATTND_KERNELS_CUDA_ROW_CUH_
#define ATTND_KERNELS_CUDA_ROW_CUH_

// Rows of scores, whose columns four neighbouring lanes share as mma and wgmma
// spread them, and what becomes of them in memory.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/descriptor.h"

namespace attnd::cuda {

// The larger of the values that the four lanes of a row hold.
__device__ inline float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ inline float QuadSum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// (E7), from a maximum in units of log2. A row that saw nothing has l = 0.
__device__ inline float LogSumExp(float m_log2, float l) {
  constexpr float kLn2 = 0.693147180559945309f;
  return l == 0.0f ? -INFINITY : fmaf(m_log2, kLn2, logf(l));
}

// Row `row` of O for sequence b and q head h, of elements Out.
template <class Out>
__device__ Out* OutputRow(const DeviceProblem& p, int64_t b, int64_t h,
                          int64_t row) {
  return static_cast<Out*>(p.o.data) + b * p.o.batch_stride +
         h * p.o.head_stride + row * p.o.token_stride;
}

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

#endif  // ATTND_KERNELS_CUDA_ROW_CUH_
