#ifndef ATTND_KERNELS_CUDA_TILE_TURNS_CUH_
#define ATTND_KERNELS_CUDA_TILE_TURNS_CUH_

// The order in which blocks of columns add to the sums of dQ, where that must
// be the same each time: they take turns at each block of rows, the last block
// of the last segment first, and a counter of the rows says whose turn it is.
//
// Nobody waits for ever, whatever else runs on the device: blocks of threads
// take their tiles, one or one after the other, from a counter, a head's last
// columns first. So whom one waits for has been taken before, and the first
// waits for nobody.

#include <cstdint>

#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/sequence.h"
#include "kernels/cuda/tile/visits.h"

namespace attnd::cuda {

// How many turns there are at rows [first, last] until the first block of a
// segment has had its own: block n has turn TurnsUntil - 1 - n. PrepareRows
// says so of all, as who waits for a turn has few registers.
__device__ inline uint32_t TurnsUntil(const Sequence& sequence, int segment,
                                      int64_t first, int64_t last, int cols) {
  int64_t turns =
      ColumnBlocksOf(sequence.Intervals(segment), first, last, cols).hi;
  for (int n = segment + 1; n < sequence.problem->num_segments; ++n) {
    turns += ColumnBlocksOf(sequence.Intervals(n), first, last, cols).size();
  }
  return static_cast<uint32_t>(turns);
}

// For one thread: until `turn` turns have ended. What was added in them is seen
// by this thread, and by those that a barrier then lets go on.
__device__ inline void WaitForTurn(const uint32_t* counter, uint32_t turn) {
  while (ptx::LoadAcquire(counter) != turn) {
  }
}

// For one thread, once it knows that all has been added: after a barrier that
// comes after all have, or a wait for what the copy engine adds.
__device__ inline void EndTurn(uint32_t* counter, uint32_t turn) {
  ptx::StoreRelease(counter, turn + 1);
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_TURNS_CUH_
