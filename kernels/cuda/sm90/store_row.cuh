#ifndef ATTND_KERNELS_CUDA_SM90_STORE_ROW_CUH_
#define ATTND_KERNELS_CUDA_SM90_STORE_ROW_CUH_

// Stores rows of accumulators to memory by the threads that hold them.

#include <cstdint>

#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/tile/element.cuh"

namespace attnd::cuda::sm90 {

// Stores a row of 16-bit outputs up to column `dim` at `to`, which is aligned
// to 16 bytes, if `stored`. It is the thread's first or second row, by r, 0 or
// 1. Neighbouring lanes exchange words, so that each stores 8 bytes in a
// piece, and the four lanes of a row 32. All lanes of the warp call it.
template <class T, int kCount>
__device__ void StorePairs(const float (&o)[kCount], int r, T* to, bool stored,
                           int dim, int lane) {
  const bool odd = lane & 1;
  const uint64_t at =
      ptx::GlobalAddress(to + 8 * (lane & 1) + 4 * (lane % 4 / 2));
#pragma unroll
  for (int n = 0; n < kCount / 4; n += 2) {
    const int e = 4 * n + 2 * r;
    const uint32_t first = ptx::Pack<T>(o[e], o[e + 1]);
    const uint32_t second = ptx::Pack<T>(o[e + 4], o[e + 5]);
    const uint32_t got = __shfl_xor_sync(0xffffffff, odd ? first : second, 1);
    if (stored && 8 * (n + odd) < dim) {
      ptx::StoreGlobal8(at + 16 * n, odd ? got : first, odd ? second : got);
    }
  }
}

// Stores a row of outputs of any type, element by element.
template <class Out, int kCount>
__device__ void StoreElements(const float (&o)[kCount], int r, Out* to, int dim,
                              int lane) {
#pragma unroll
  for (int n = 0; n < kCount / 4; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = 8 * n + 2 * (lane % 4) + i;
      if (column < dim) to[column] = FromFloat<Out>(o[4 * n + 2 * r + i]);
    }
  }
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_STORE_ROW_CUH_
