#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_TILE_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_TILE_CUH_

// What a block of threads has to do: a block of columns, and the blocks of rows
// that see it.

#include <cstdint>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/mask.h"

namespace attnd::cuda::sm90 {

// The columns of a segment that a block of threads has.
struct Columns {
  int first;   // in the segment
  int valid;   // so many of them the sequence has
  int stored;  // so many of them the tensor has
  // Whether the tensor goes on after the sequence's end, which lies among them:
  // the copy engine would read padding.
  __device__ bool cut() const { return valid < stored; }
};

// A block of columns of a segment, of one K/V head of one sequence: all that a
// block of threads needs to know of it. PlanColumns writes it to the launch's
// scratch (plan_columns.cu), from where the loader brings it to a ColumnSlot.
struct alignas(16) ColumnBlock {
  ConstTensorView q, d_o;  // [batch, q_len, q_heads, head_dim / value_dim]
  ConstTensorView k, v;    // [batch, len, kv_heads, head_dim / value_dim]
  TensorView d_k, d_v;     // as k and v, or null
  ConstTensorView d_k_before, d_v_before;  // what they are added to, or null
  RowIntervals intervals;                  // what rows see of the segment
  // The launch's scratch, see DeviceGradients. Heads are those of all
  // sequences, first_padded_head of them before this one's.
  const float *lse, *delta, *natural_lse;  // [heads, padded_rows]
  float* sums;      // of dQ, [heads, padded_rows, kDqDim]
  uint32_t* turns;  // [heads, padded_rows / kTurnRows]
  // [padded_rows / kTurnRows], of this sequence and segment: TurnsUntil, or
  // TurnsBefore if columns go up (turns.cuh).
  const uint32_t* turn_offsets;
  const uint32_t* huge;  // [heads, padded_rows / kGradientRows]
  int padded_rows, first_padded_head;
  BlobOffset maps;
  int b;  // sequence
  int kv_head;
  int first_head, group;  // the first of the q heads that share it; how many
  int segment;
  int q_len, stored_rows;  // the rows of the sequence, and of its tensors
  int head_dim, value_dim;
  Columns columns;
  Columns other;  // those of the cluster's other block
  // Blocks of rows, the same of each q head: [begin, end) are visited, and
  // [clear_begin, clear_end) see all of the cluster's columns. See visits.h.
  int begin, end, clear_begin, clear_end;
  // Where a walk over the former begins and ends, and how it goes: 1 or -1. If
  // turns are taken columns go the other way.
  int walk_begin, walk_end, walk_step;
  float scale, factor;  // product → score, product → score in units of log2

  // Whether the sequence ends in the `rows` rows from `row` on, and its tensors
  // go on.
  __device__ bool CutsRows(int row, int rows) const {
    return q_len - row < rows && q_len < stored_rows;
  }
  __device__ int row_blocks() const { return end - begin; }
  // Tiles of rows that are visited, of all q heads.
  __device__ int tiles() const { return group * row_blocks(); }
  __device__ bool IsClear(int block) const {
    return block >= clear_begin && block < clear_end;
  }
};

// What consumers need to know of a tile of rows. The describer writes it before
// Q's full.
struct RowTile {
  // kMasked: some row does not see all of the block's columns. kHuge: some LSE
  // of the kGradientRows rows that it is part of is huge (score.cuh).
  static constexpr uint32_t kMasked = 1, kHuge = 2;

  float* sums;  // the tile's first sum of dQ; only wide consumers have it
  const float* natural_lse;  // [rows], there only if kHuge
  int first;                 // the tile's first row, in the sequence
  uint32_t flags;            // 0 for most tiles
};

// Where the launch's plans are: ColumnBlock [tiles, cluster].
__device__ inline ColumnBlock* PlansOf(const LaunchParams& params) {
  return reinterpret_cast<ColumnBlock*>(params.scratch + params.plans_at);
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_TILE_CUH_
