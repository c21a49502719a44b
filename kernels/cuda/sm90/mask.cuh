#ifndef ATTND_KERNELS_CUDA_SM90_MASK_CUH_
#define ATTND_KERNELS_CUDA_SM90_MASK_CUH_

// What becomes of a tile's products before softmax sees them: masks, and scores
// that are not plain.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/sm90/shared.cuh"
#include "kernels/cuda/tile/score.cuh"

namespace attnd::cuda::sm90 {

// A thread has columns 0, 1, 8, 9, 16, 17, ... of a row, counted from its
// first. Bit i says whether the ith of these kBits columns lies before `end`.
template <int kBits>
__device__ uint32_t ColumnsBefore(int end) {
  static_assert(kBits <= 32);
  const int count = 2 * (end >> 3) + min(end & 7, 2);
  if (count <= 0) return 0;
  return count >= 32 ? ~0u : (1u << count) - 1;
}

// Sets to -inf what the thread's two rows, `row` and row + 8 of the tile of
// rows, do not see.
template <int kRows, int kCount>
__device__ void Mask(const ColumnTile<kRows>& tile, int row, int lane,
                     float (&s)[kCount]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const uchar2 seen = tile.seen[row + 8 * r];
    const int first = 2 * (lane % 4);
    const uint32_t sees = ColumnsBefore<kCount / 2>(seen.y - first) &
                          ~ColumnsBefore<kCount / 2>(seen.x - first);
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      float& x = s[4 * (i / 2) + 2 * r + i % 2];
      if ((sees >> i & 1) == 0) x = -INFINITY;
    }
  }
}

// Makes scores of products, (E1) and (E2), by the slot's rule, and masks them.
// It goes through local memory one by one, to take no registers from the fast
// path.
template <int kRows, int kCount>
__device__ void Score(const ColumnTile<kRows>& tile, const TileSlot& slot,
                      int row, int lane, float (&s)[kCount]) {
  // This has another type than S, as nvcc gives local arrays of one type in
  // inlined functions one place: S would be in local memory, too.
  float scores[kCount / 4][4];
#pragma unroll
  for (int e = 0; e < kCount; ++e) scores[e / 4][e % 4] = s[e];
  const ScoreRule rule = slot.rule;
#pragma unroll 1
  for (int e = 0; e < kCount; ++e) {
    const int i = row + e % 4 / 2 * 8;
    const int column = e / 4 * 8 + 2 * (lane % 4) + e % 2;
    float& score = scores[e / 4][e % 4];
    const uchar2 seen = tile.seen[i];
    const bool sees = i < slot.valid && (!(tile.flags & kMasked) ||
                                         (column >= seen.x && column < seen.y));
    score = sees ? rule.Natural(score, slot.first_row + i,
                                tile.bias_column + column)
                 : -INFINITY;
  }
#pragma unroll
  for (int e = 0; e < kCount; ++e) s[e] = scores[e / 4][e % 4];
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_MASK_CUH_
