#ifndef ATTND_KERNELS_CUDA_SM90_MASK_CUH_
#define ATTND_KERNELS_CUDA_SM90_MASK_CUH_

// What becomes of the scores of a tile before softmax sees them.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/sm90/shared.cuh"
#include "kernels/cuda/tile/score.cuh"

namespace attnd::cuda::sm90 {

// Of a thread's columns of a row, every eighth and the one after it, those that
// lie before `end`, which is relative to the first: a bit each.
template <int kBits>
__device__ uint32_t ColumnsBefore(int end) {
  static_assert(kBits <= 32);
  const int count = 2 * (end >> 3) + min(end & 7, 2);
  if (count <= 0) return 0;
  return count >= 32 ? ~0u : (1u << count) - 1;
}

// Of a thread whose rows in the block are `row` and row + 8: what they do not
// see becomes -inf.
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

// Scores by the rule, and masked. One by one, by way of local memory, to take
// no registers from what is done always.
template <int kRows, int kCount>
__device__ void Score(const ColumnTile<kRows>& tile, const TileSlot& slot,
                      int row, int lane, float (&s)[kCount]) {
  // Of another type than S: nvcc gives inlined arrays of one type one place in
  // local memory, and then S has one.
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
