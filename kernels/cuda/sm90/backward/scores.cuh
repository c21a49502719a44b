#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_SCORES_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_SCORES_CUH_

// From S to P, both transposed, [64 columns, kRows]: a thread has two columns,
// eight apart, and two neighbours of every eight rows.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/sm90/backward/tile.cuh"
#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/tile/score.cuh"
#include "kernels/mask.h"

namespace attnd::cuda::sm90 {

// The rows that see a column: `count` of them from row `first` on.
struct SeenBy {
  int first;
  uint32_t count;
};

// Writes to `columns` which rows see each of a warp's 16 columns, from `column`
// of the segment on. All lanes of the warp call it.
__device__ inline void FindRowsThatSee(const RowIntervals& intervals,
                                       int64_t column, int lane,
                                       SeenBy* columns) {
  if (lane < 16) {
    const Interval rows = intervals.RowsThatSee(column + lane, column + lane);
    columns[lane] = {static_cast<int>(rows.lo),
                     static_cast<uint32_t>(rows.size())};
  }
  __syncwarp();  // all see it
}

// Makes -inf of scores whose row does not see their column. `columns` is at the
// thread's first column, and `row` is the tile's first row.
template <int kRows>
__device__ void MaskScores(const SeenBy* columns, int row, int lane,
                           float (&s)[kRows / 2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const SeenBy rows = columns[8 * r];
    const int first = row + 2 * (lane % 4) - rows.first;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (static_cast<uint32_t>(first + 8 * n + i) >= rows.count)
          s[4 * n + 2 * r + i] = -INFINITY;
      }
    }
  }
}

// LSE or delta of those rows of a tile that a thread has, two of every eight,
// from an array [kRows].
template <int kRows>
class RowValues {
 public:
  __device__ RowValues(const float* rows, int lane) {
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      of_[n] = *reinterpret_cast<const float2*>(&rows[8 * n + 2 * (lane % 4)]);
    }
  }
  __device__ const float2& operator[](int n) const { return of_[n]; }

 private:
  float2 of_[kRows / 8];
};

// Turns products that may be of any size into scores, (E2), with forward's
// roundings, and these into log2 of P. `natural_lse`, a pointer in shared
// memory, points to LSE of the tile's rows in the launch's scratch.
template <int kRows>
__device__ void ScoreHuge(float scale, const float* const& natural_lse,
                          int lane, float (&s)[kRows / 2]) {
  const ScoreRule rule = {scale, 0.0f, nullptr, 0, DType::kF32};
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
    // The pointer is read each time, as D 128 has no registers to keep it.
    const float* lse = *const_cast<const float* const volatile*>(&natural_lse);
    const float2 of = RowValues<8>(&lse[8 * n], lane)[0];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& x = s[4 * n + i];
      x = Log2P(rule.Natural(x, 0, 0), i % 2 == 0 ? of.x : of.y);
    }
  }
}

// Does what a tile's flags ask for with its scores, and returns what
// Exponentiate must multiply them by. `columns`: as of MaskScores.
template <int kRows>
__device__ float RareScores(const ColumnBlock& block, const RowTile& tile,
                            const SeenBy* columns, int lane,
                            float (&s)[kRows / 2]) {
  float factor = block.factor;
  if (tile.flags & RowTile::kHuge) {
    ScoreHuge<kRows>(block.scale, tile.natural_lse, lane, s);
    factor = 1.0f;  // and Exponentiate subtracts kHugeLse, which is nothing
  }
  if (tile.flags & RowTile::kMasked)
    MaskScores<kRows>(columns, tile.first, lane, s);
  return factor;
}

// (E12): turns scores, which are first multiplied by `factor`, into P. LSE of
// the first kEarlyRows rows has been read before.
template <int kRows, int kEarlyRows>
__device__ void Exponentiate(const float (&lse)[kRows],
                             const RowValues<kEarlyRows>& early_lse,
                             float factor, int lane, float (&s)[kRows / 2]) {
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
    const float2 of =
        n < kEarlyRows / 8 ? early_lse[n] : RowValues<8>(&lse[8 * n], lane)[0];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float* x = &s[4 * n + 2 * r];
      x[0] = ptx::Exp2(fmaf(x[0], factor, -of.x));
      x[1] = ptx::Exp2(fmaf(x[1], factor, -of.y));
    }
  }
}

// Sets all columns of each row to the row's value.
template <int kRows>
__device__ void SpreadOverColumns(const float (&rows)[kRows], int lane,
                                  float (&s)[kRows / 2]) {
  const RowValues<kRows> values(rows, lane);
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
    const float2 of = values[n];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      s[4 * n + 2 * r] = of.x;
      s[4 * n + 2 * r + 1] = of.y;
    }
  }
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_SCORES_CUH_
