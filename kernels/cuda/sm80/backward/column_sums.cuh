#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_COLUMN_SUMS_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_COLUMN_SUMS_CUH_

// Takes a warp's sums of dK or dV to memory. Sums are [kTiles][kDimTiles][4] as
// mma leaves them: 16 * kTiles columns by 8 * kDimTiles dims.

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/sm80/backward/column_block.cuh"
#include "kernels/cuda/sm80/epilogue.cuh"
#include "kernels/cuda/tile/row.cuh"

namespace attnd::cuda::sm80 {

// Which part of a block's dK and dV a warp has.
struct ColumnPart {
  const ColumnBlock& block;
  int column, dim;   // the part's first column in the block, and its first dim
  uint32_t staging;  // the warp's own tile in shared memory, of the part's size
  int lane;
};

// Multiplies the sums by `factor`. Columns of the segment beyond the sequence's
// length get zeros.
template <int kTiles, int kDimTiles>
__device__ void Finish(const ColumnPart& at, float factor,
                       float (&sums)[kTiles][kDimTiles][4]) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool valid =
          at.column + 16 * t + 8 * r + at.lane / 4 < at.block.valid;
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          sums[t][d][i] = valid ? sums[t][d][i] * factor : 0.0f;
        }
      }
    }
  }
}

// Adds what `before` has of the columns that are stored, if it has data: the
// elements that the lane holds, so that it may be the memory of the sums' own
// tensor where that is of f32. `dim` is how many dims it has.
template <int kTiles, int kDimTiles>
__device__ void AddBefore(const ColumnPart& at, const ConstTensorView& before,
                          int dim, float (&sums)[kTiles][kDimTiles][4]) {
  if (before.data == nullptr) return;
  const float* const from = ColumnRows<float>(before, at.block) + at.dim;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int column = at.column + 16 * t + 8 * r + at.lane / 4;
      if (column >= at.block.stored) continue;
      const float* const row = from + column * before.token_stride;
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int place = 8 * d + 2 * (at.lane % 4) + i;
          if (at.dim + place < dim) sums[t][d][2 * r + i] += row[place];
        }
      }
    }
  }
}

// Stores the sums, if `view` has data, rounded to its type: T or f32. `dim` is
// how many dims the view has.
template <class T, int kTiles, int kDimTiles>
__device__ void Store(const ColumnPart& at,
                      const float (&sums)[kTiles][kDimTiles][4],
                      const TensorView& view, int dim) {
  const int left = dim - at.dim;
  if (view.data == nullptr || left <= 0) return;
  const int end = at.block.stored - at.column;
  const int64_t offset = at.column * view.token_stride + at.dim;
  if (view.dtype == DType::kF32) {
    StoreElements(sums, ColumnRows<float>(view, at.block) + offset,
                  view.token_stride, 0, end, left, at.lane);
    return;
  }
  T* to = ColumnRows<T>(view, at.block) + offset;
  if (IsAligned(to, view.token_stride) && left % 8 == 0) {
    StoreRows<T, 8 * kDimTiles>(sums, at.staging, to, view.token_stride, 0, end,
                                left, at.lane);
  } else {
    StoreElements(sums, to, view.token_stride, 0, end, left, at.lane);
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_COLUMN_SUMS_CUH_
