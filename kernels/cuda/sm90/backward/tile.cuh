#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_TILE_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_TILE_CUH_

// What a block of threads has to do: a block of columns, and the blocks of rows
// that see it.

#include <cstdint>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/mask.h"

namespace attnd::cuda::sm90 {

// As many columns of a segment as a block of threads has.
struct Columns {
  int first;
  int valid;   // that the sequence has
  int stored;  // that the tensor has
  // Whether the tensor goes on where the sequence, and the tile, end.
  __device__ bool cut() const { return valid < stored; }
};

// A block of columns of a segment, of one K/V head of one sequence: all that a
// block of threads needs to know of it. PlanColumns writes it
// (plan_columns.cu).
struct alignas(16) ColumnBlock {
  ConstTensorView q, d_o;  // of the problem
  ConstTensorView k, v;    // of the segment
  TensorView d_k, d_v;     // of the segment, or null
  RowIntervals intervals;  // of the segment
  // What rows have in the launch's scratch, see DeviceGradients: rows of a q
  // head are padded_rows, and first_padded_head heads come before the
  // sequence's.
  const float *lse, *delta, *natural_lse;
  float* sums;
  uint32_t* turns;
  const uint32_t* turns_until;  // of the segment
  const uint32_t* huge;         // of each kGradientRows
  int padded_rows, first_padded_head;
  BlobOffset maps;
  int b;  // sequence
  int kv_head;
  int first_head, group;  // q heads that share it
  int segment;
  int q_len, stored_rows;  // that the sequence has, and its tensors
  int head_dim, value_dim;
  Columns columns;
  Columns other;  // of the cluster's other block
  // Blocks of rows, the same of each q head: [begin, end) are visited,
  // [clear_begin, clear_end) see all of it. See visits.h.
  int begin, end, clear_begin, clear_end;
  float scale, factor;  // of a score, and in units of log2

  __device__ bool CutsRows(int row, int rows) const {
    return q_len - row < rows && q_len < stored_rows;
  }
  __device__ int row_blocks() const { return end - begin; }
  // That are visited, of all q heads.
  __device__ int tiles() const { return group * row_blocks(); }
  __device__ bool IsClear(int block) const {
    return block >= clear_begin && block < clear_end;
  }
};

// What consumers need to know of a tile of rows.
struct RowTile {
  // Some row does not see all of the block's columns; some row of the same
  // kGradientRows has a huge LSE (score.cuh).
  static constexpr uint32_t kMasked = 1, kHuge = 2;

  float* sums;  // of dQ, where the tile's begin; for wide consumers
  const float* natural_lse;  // of the tile's rows, where they are huge
  int first;                 // row
  uint32_t flags;            // 0 of most
};

// Where the launch's are: of each tile one for each block of the cluster.
__device__ inline ColumnBlock* PlansOf(const LaunchParams& params) {
  return reinterpret_cast<ColumnBlock*>(params.scratch + params.plans_at);
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_TILE_CUH_
