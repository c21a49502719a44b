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

// A row of 16-bit outputs, aligned to 16 bytes, up to column `dim`; `r` is
// which of the thread's two. Neighbouring lanes exchange words, so that each
// stores 8 bytes and the four of a row 32 in a piece. All lanes of the warp
// come here. kAll: dim is all columns, and every row is stored.
template <bool kAll, class T, int kCount>
__device__ void StoreRow(const float (&o)[kCount], int r, T* to, bool stored,
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
    if (kAll || (stored && 8 * (n + odd) < dim)) {
      ptx::StoreGlobal8(at + 16 * n, odd ? got : first, odd ? second : got);
    }
  }
}

// A row of outputs of any type, one by one.
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
template <class T, int kCount>
__device__ void StoreAnyRow(const float (&o)[kCount], int r,
                            const TileSlot& slot, int row, int lane) {
  if (slot.o_dtype == DType::kF32) {
    StoreElements(o, r, static_cast<float*>(slot.o) + row * slot.o_stride,
                  slot.value_dim, lane);
  } else {
    StoreElements(o, r, static_cast<T*>(slot.o) + row * slot.o_stride,
                  slot.value_dim, lane);
  }
}

// Not by a factor of 0: there may be a NaN, of a row that nobody sees.
template <int kCount>
__device__ void ClearRows(float (&o)[kCount], const bool (&which)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] = which[i % 4 / 2] ? 0.0f : o[i];
}

// Divides O by the sums and stores it with LSE; rows that saw nothing, and
// those that are not valid, become 0 and -inf. Whether a row of the warp has to
// be done again: then nothing is stored. `row` is the thread's first in the
// block.
template <class T, int kCount>
__device__ bool Finish(const OnlineSoftmax& softmax, const TileSlot& slot,
                       int row, int lane, float (&o)[kCount]) {
  const bool fast = slot.kind == SlotKind::kFast;
  const int valid = slot.valid;
  const float factor = slot.factor;
  float weight[2], lse[2];
  bool empty[2], again = false;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = QuadSum(softmax.l[r]);
    const bool counts = row + 8 * r < valid;
    again = again || (fast && counts && softmax.Overflowed(r, sum, factor));
    empty[r] = sum == 0.0f || !counts;
    weight[r] = ptx::Reciprocal(sum);
    lse[r] = empty[r] ? -INFINITY : LogSumExp(softmax.m[r] * factor, sum);
  }
  if (__any_sync(0xffffffff, again)) return true;
  ScaleRows(o, weight);
  if (__any_sync(0xffffffff, empty[0] || empty[1])) ClearRows(o, empty);
  // O has a column for two of a thread's elements.
  const bool whole = slot.o_aligned && slot.value_dim == kCount * 2 &&
                     __all_sync(0xffffffff, row >= slot.first_stored &&
                                                row + 8 < slot.end_stored);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row + 8 * r;
    const bool stored = i >= slot.first_stored && i < slot.end_stored;
    if (slot.lse != nullptr && stored && lane % 4 == 0) slot.lse[i] = lse[r];
    T* const to = static_cast<T*>(slot.o) + i * slot.o_stride;
    if (whole) {
      StoreRow<true>(o, r, to, true, kCount * 2, lane);
    } else if (slot.o_aligned) {
      StoreRow<false>(o, r, to, stored, slot.value_dim, lane);
    } else if (stored && slot.o != nullptr) {
      StoreAnyRow<T>(o, r, slot, i, lane);
    }
  }
  return false;
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_EPILOGUE_CUH_
