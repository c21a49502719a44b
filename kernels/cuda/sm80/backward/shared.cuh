#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_SHARED_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_SHARED_CUH_

// What a block of threads of backward.cuh has in shared memory:
// BackwardMemory's tiles, then BackwardShared.

#include <cstdint>

#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/sm80/backward/column_block.cuh"
#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/open_tile.cuh"

namespace attnd::cuda::sm80 {

template <class Config>
struct BackwardShared {
  using T = typename Config::T;
  // Of the rows that are worked on and of the next, in turns (RowTerms).
  // RowLoader writes them, all warps read them.
  alignas(16) float lse[2][Config::kRows];
  alignas(16) float delta[2][Config::kRows];
  alignas(16) ushort2 seen[2][Config::kRows];  // set where there is a mask
  // All threads write the description, thread 0 what follows.
  TileDescription description;
  uint32_t tile;
  ColumnBlock block;
  HeadRows<T> q, d_o;
  RowScratch scratch;
  Turn turn;  // the turn at the rows that are worked on; thread 0's alone
  DeviceSegmentGradients gradients;
  bool plain;    // whether scores take the fast path, see ScoreRule
  float factor;  // what brings plain scores to units of log2
};

// Where tiles are in a block's shared memory, in bytes from its start.
template <class Config>
struct BackwardMemory {
  using Rows = TileLayout<Config::kDim>;  // Q, dO, K and V: a line is a token
  using Scores = TileLayout<Config::kRows>;  // P and dS: a line is a column
  static constexpr int kK = 0;
  static constexpr int kV = kK + Rows::Bytes(Config::kCols);
  static constexpr int kQ = kV + Rows::Bytes(Config::kCols);
  static constexpr int kDO =
      kQ + Config::kQBuffers * Rows::Bytes(Config::kRows);
  static constexpr int kDS =
      kDO + Config::kDOBuffers * Rows::Bytes(Config::kRows);
  // Absent where warps need no P of others.
  static constexpr int kP = kDS + Scores::Bytes(Config::kCols);
  static constexpr int kShared =
      kP + (Config::kInRegisters ? 0 : Scores::Bytes(Config::kCols));
};

template <class Config>
constexpr int BackwardSharedBytes() {
  return BackwardMemory<Config>::kShared +
         static_cast<int>(sizeof(BackwardShared<Config>));
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_SHARED_CUH_
