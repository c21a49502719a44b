#ifndef ATTND_KERNELS_CUDA_SM90_EPILOGUE_CUH_
#define ATTND_KERNELS_CUDA_SM90_EPILOGUE_CUH_

// From accumulators to O and LSE in memory.

#include <cstdint>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/row.cuh"
#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/shared.cuh"
#include "kernels/cuda/sm90/softmax.cuh"

namespace attnd::cuda::sm90 {

// Four words of each of the four lanes of a row, transposed: lane q gets what
// the lanes have in w[q], in their order.
__device__ inline void TransposeQuad(uint32_t (&w)[4], int lane) {
  const bool odd = lane & 1, high = lane & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(0xffffffff, odd ? w[i] : w[i + 1], 1);
    (odd ? w[i] : w[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(0xffffffff, high ? w[i] : w[i + 2], 2);
    (high ? w[i] : w[i + 2]) = got;
  }
}

// A row of 16-bit outputs, aligned, in pieces of 16 bytes; `r` is which of the
// thread's two. All lanes of the warp come here.
template <class T, int kCount>
__device__ void StoreRow(const float (&o)[kCount], int r, T* to, bool stored,
                         int dim, int lane) {
#pragma unroll
  for (int n = 0; n < kCount / 4; n += 4) {
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int e = 4 * (n + i) + 2 * r;
      w[i] = ptx::Pack<T>(o[e], o[e + 1]);
    }
    TransposeQuad(w, lane);
    const int column = 8 * (n + lane % 4);
    if (stored && column < dim) {
      *reinterpret_cast<uint4*>(to + column) =
          make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
}

// A row of outputs of any kind.
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

// Divides O by the sums and stores it with LSE; rows that saw nothing, and
// those that are not valid, become 0 and -inf. Whether a row of the warp has to
// be done again: then nothing is stored. `row` is the thread's first in the
// block.
template <class T, int kCount>
__device__ bool Finish(const OnlineSoftmax& softmax, const TileSlot& slot,
                       int row, int lane, float (&o)[kCount]) {
  float sum[2];
  bool again = false;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] = QuadSum(softmax.l[r]);
    again =
        again || (slot.kind == SlotKind::kFast && row + 8 * r < slot.valid &&
                  softmax.Overflowed(r, sum[r], slot.factor));
  }
  if (__any_sync(0xffffffff, again)) return true;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row + 8 * r;
    const bool stored = i >= slot.first_stored && i < slot.end_stored;
    const bool empty = sum[r] == 0.0f || i >= slot.valid;
    if (slot.lse != nullptr && stored && lane % 4 == 0) {
      slot.lse[i] =
          empty ? -INFINITY : LogSumExp(softmax.m[r] * slot.factor, sum[r]);
    }
    if (slot.o == nullptr) continue;
    const float weight = 1.0f / sum[r];
#pragma unroll
    for (int n = 0; n < kCount / 4; ++n) {
#pragma unroll
      for (int e = 4 * n + 2 * r; e < 4 * n + 2 * r + 2; ++e) {
        o[e] = empty ? 0.0f : o[e] * weight;
      }
    }
    if (slot.o_dtype == DType::kF32) {
      if (stored) {
        StoreElements(o, r, static_cast<float*>(slot.o) + i * slot.o_stride,
                      slot.value_dim, lane);
      }
    } else {
      T* to = static_cast<T*>(slot.o) + i * slot.o_stride;
      if (IsAligned(static_cast<T*>(slot.o), slot.o_stride) &&
          slot.value_dim % 8 == 0) {
        StoreRow(o, r, to, stored, slot.value_dim, lane);
      } else if (stored) {
        StoreElements(o, r, to, slot.value_dim, lane);
      }
    }
  }
  return false;
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_EPILOGUE_CUH_
