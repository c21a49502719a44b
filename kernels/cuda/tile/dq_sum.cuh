#ifndef ATTND_KERNELS_CUDA_TILE_DQ_SUM_CUH_
#define ATTND_KERNELS_CUDA_TILE_DQ_SUM_CUH_

// The sums of dQ in a launch's scratch, f32 [padded_rows, dim] for each head:
// where an element lies among them, and how much of the scale they contain.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch/gradient.h"

namespace attnd::cuda {

// The part of the scale that the sums of dQ contain: they are dQ / scale *
// DqPower(scale), and FinishDq multiplies by the rest. It is 1 unless the scale
// is huge. Then dQ / scale may lie below f32's normal numbers, which memory
// does not add, although dQ does not. It is a power of two, so that no bit is
// lost. Kernels that take plain scores alone (ScoreRule::plain) never see such
// a scale.
__device__ inline float DqPower(float scale) {
  return fabsf(scale) > 0x1p40f ? ldexpf(1.0f, ilogbf(scale)) : 1.0f;
}

// Where the block of 16 x 16 sums that has (row, column) begins, in floats from
// the head's first sum, if the layout is kLanes or kQuads. `dim` is a multiple
// of 16.
__device__ inline int64_t DqBlock(int64_t row, int column, int dim) {
  return row / 16 * 16 * dim + column / 16 * 256;
}

// Where the sum of (row, column) lies, in floats from the head's first sum.
__device__ inline int64_t DqPlace(DqLayout layout, int64_t row, int column,
                                  int dim) {
  if (layout == DqLayout::kRows) return row * dim + column;
  // A block lies as mma's accumulators hold it: lane 4 r + q has columns 2 q,
  // 2 q + 1, 2 q + 8 and 2 q + 9 of rows r and r + 8.
  const int r = static_cast<int>(row % 16), c = column % 16;
  const int lane = r % 8 * 4 + c % 8 / 2;
  const int half = r / 8, word = c / 8 * 2 + c % 2;
  const int at = layout == DqLayout::kLanes ? (half * 4 + word) * 32 + lane
                                            : (half * 32 + lane) * 4 + word;
  return DqBlock(row, column, dim) + at;
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_DQ_SUM_CUH_
