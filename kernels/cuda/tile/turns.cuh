#ifndef ATTND_KERNELS_CUDA_TILE_TURNS_CUH_
#define ATTND_KERNELS_CUDA_TILE_TURNS_CUH_

// The order in which blocks of columns add to the sums of dQ, where that must
// be the same each time: they take turns at each block of rows, and a counter
// of the rows says whose turn it is. A head whose columns go down has the last
// block of the last segment first, one whose columns go up the first block of
// the first segment.
//
// Nobody waits for ever, whatever else runs on the device: blocks of threads
// take their blocks of columns from a counter, a head's in the order of their
// turns. So those that one waits for were taken before it, by blocks of threads
// that are running, and the first one waits for nobody.

#include <cstdint>

#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/sequence.h"
#include "kernels/cuda/tile/visits.h"

namespace attnd::cuda {

// Of a head whose columns go down: how many turns there are at rows [first,
// last] up to and with that of block 0 of `segment`, where blocks have `cols`
// columns: block n has turn TurnsUntil - 1 - n, counted from 0. PrepareRows
// stores it for every tile of rows, because the threads that wait for turns
// have few registers.
__device__ inline uint32_t TurnsUntil(const Sequence& sequence, int segment,
                                      int64_t first, int64_t last, int cols) {
  int64_t turns =
      ColumnBlocksOf(sequence.Intervals(segment), first, last, cols).hi;
  for (int n = segment + 1; n < sequence.problem->num_segments; ++n) {
    turns += ColumnBlocksOf(sequence.Intervals(n), first, last, cols).size();
  }
  return static_cast<uint32_t>(turns);
}

// The same of a head whose columns go up, and one more: block n has turn
// TurnsBefore - 1 + n.
__device__ inline uint32_t TurnsBefore(const Sequence& sequence, int segment,
                                       int64_t first, int64_t last, int cols) {
  int64_t turns =
      1 - ColumnBlocksOf(sequence.Intervals(segment), first, last, cols).lo;
  for (int n = 0; n < segment; ++n) {
    turns += ColumnBlocksOf(sequence.Intervals(n), first, last, cols).size();
  }
  return static_cast<uint32_t>(turns);
}

// Waits until `turn` turns have ended. What was added in them is seen by the
// calling thread, and by those that it then lets go on at a barrier.
__device__ inline void WaitForTurn(const uint32_t* counter, uint32_t turn) {
  while (ptx::LoadAcquire(counter) != turn) {
  }
}

// Ends turn `turn`. One thread calls it, once it knows that all of the block's
// sums have been added: from a barrier at which all who add have arrived, or
// from a wait for the copy engine's adding.
__device__ inline void EndTurn(uint32_t* counter, uint32_t turn) {
  ptx::StoreRelease(counter, turn + 1);
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_TURNS_CUH_
