#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_BLOCK_TURNS_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_BLOCK_TURNS_CUH_

// A block's turn at the sums of dQ (turns.cuh), at the tile of rows that a walk
// has come to.

#include <cstdint>

#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/sm90/backward/row_walk.cuh"
#include "kernels/cuda/sm90/ptx.cuh"

namespace attnd::cuda::sm90 {

// The counter that says whose turn it is at these rows.
template <class Config>
__device__ uint32_t* TurnCounter(const ColumnBlock& block,
                                 const RowWalk<Config::kRows>& walk) {
  // Each block of a cluster adds to columns of its own, by a counter of its
  // own.
  const uint32_t rank = Config::kCluster == 1 ? 0 : ptx::ClusterRank();
  return block.turns + walk.padded_row(block) / kTurnRows + rank;
}

// Which turn at these rows is the block's.
template <class Config>
__device__ uint32_t TurnNumber(const ColumnBlock& block,
                               const RowWalk<Config::kRows>& walk) {
  return block.turn_offsets[walk.row() / kTurnRows] - 1 -
         block.walk_step * (block.columns.first / Config::kClusterCols);
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_BLOCK_TURNS_CUH_
