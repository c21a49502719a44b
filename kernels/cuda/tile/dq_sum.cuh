#ifndef ATTND_KERNELS_CUDA_TILE_DQ_SUM_CUH_
#define ATTND_KERNELS_CUDA_TILE_DQ_SUM_CUH_

// dQ while it is being summed up: where an element is, and what it lacks.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch/gradient.h"

namespace attnd::cuda {

// What sums of dQ have of the scale already; the rest, of 1 to 2 in size, comes
// at the end. Memory adds nothing that is below f32's normal numbers, and dQ is
// no such thing if the scale is huge. A power of two, so that nothing is lost.
// Scores with such scales are not plain.
__device__ inline float DqPower(float scale) {
  return fabsf(scale) > 0x1p40f ? ldexpf(1.0f, ilogbf(scale)) : 1.0f;
}

// Of the sums of one head, whose rows have `dim` columns, a multiple of 16:
// where the block of 16 by 16 begins that has row `row` and column `column`.
__device__ inline int64_t DqBlock(int64_t row, int column, int dim) {
  return row / 16 * 16 * dim + column / 16 * 256;
}

// Row `row` at column `column`, from there.
__device__ inline int64_t DqPlace(DqLayout layout, int64_t row, int column,
                                  int dim) {
  if (layout == DqLayout::kRows) return row * dim + column;
  // As mma has it: lane 4 r + q holds columns 2 q and 2 q + 1 of rows r and
  // r + 8, and of the columns 8 further on.
  const int r = static_cast<int>(row % 16), c = column % 16;
  const int lane = r % 8 * 4 + c % 8 / 2;
  const int half = r / 8, word = c / 8 * 2 + c % 2;
  const int at = layout == DqLayout::kLanes ? (half * 4 + word) * 32 + lane
                                            : (half * 32 + lane) * 4 + word;
  return DqBlock(row, column, dim) + at;
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_DQ_SUM_CUH_
