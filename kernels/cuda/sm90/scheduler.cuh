#ifndef ATTND_KERNELS_CUDA_SM90_SCHEDULER_CUH_
#define ATTND_KERNELS_CUDA_SM90_SCHEDULER_CUH_

// Which tile a block works on next. Blocks take tiles in order from a counter
// that all share, so that none waits while there is work; which block has a
// tile changes nothing in its result.

#include <cstdint>

#include "kernels/cuda/tile/open_tile.cuh"

namespace attnd::cuda::sm90 {

// For one warp.
class TileScheduler {
 public:
  // `redo`, in shared memory, is the scheduler's own. It has room for as many
  // tiles as a block can have under way.
  __device__ TileScheduler(const LaunchParams& params, uint32_t* redo)
      : counter_(params.counters),
        first_tile_(params.first_tile),
        tiles_(params.num_tiles),
        redo_(redo) {}

  // The next tile of the launch, or -1; tiles that are to be done again come
  // first.
  __device__ int64_t Next() {
    again_ = waiting_ > 0;
    if (again_) return first_tile_ + redo_[--waiting_];
    if (over_) return -1;
    if (begun_ && threadIdx.x % 32 == 0) {
      tile_ = atomicInc(counter_, tiles_ - 1) + gridDim.x;
    }
    begun_ = true;
    const uint32_t tile = __shfl_sync(0xffffffff, tile_, 0);
    if (tile < tiles_) return first_tile_ + tile;
    over_ = true;
    return -1;
  }
  // Whether a tile is to be done again.
  __device__ bool HasMore() const { return waiting_ > 0; }
  // Whether the tile that Next gave last had been given before.
  __device__ bool again() const { return again_; }

  // Has Next give a tile out again.
  __device__ void Again(int64_t tile) {
    redo_[waiting_++] = static_cast<uint32_t>(tile - first_tile_);
    __syncwarp();  // all see it
  }

 private:
  // Each block begins with tile blockIdx.x of the launch, and takes all others
  // from the counter until it gets one too many. So the counter is incremented
  // num_tiles times in all, after which it is 0 again.
  uint32_t* const counter_;
  const int64_t first_tile_;
  const uint32_t tiles_;
  uint32_t tile_ = blockIdx.x;  // lane 0: the last one taken
  bool begun_ = false, over_ = false;
  uint32_t* const redo_;  // tiles, counted from the launch's first
  int waiting_ = 0;       // how many
  bool again_ = false;
};

// Where a tile lies in its problem.
struct TilePlace {
  int b, head;  // sequence, q head
  int kv_head;
  int row_block;
};

// Where a tile lies. `heads_together` heads, whose K and V the L2 cache holds
// together, are a section. The heads of a section take turns, a block of rows
// each, the last rows first: they see the most when the mask is causal, so a
// launch ends with short tiles, not with a long one. If `heads_follow`, heads
// come one after another instead, but for the last section.
__device__ inline TilePlace PlaceOf(const OpenTile& tile) {
  const auto q_heads = static_cast<uint32_t>(tile.problem->q_heads);
  const auto heads = static_cast<uint32_t>(tile.problem->batch) * q_heads;
  const uint32_t together = tile.heads_together, row_blocks = tile.row_blocks;
  uint32_t index = tile.index;
  // Heads that do not fill a section come first: only if the last section has
  // enough tiles do all blocks end at about the same time.
  const uint32_t rest = Divide(heads, together).remainder;
  uint32_t first_head = 0, width = rest;
  if (index >= rest * row_blocks) {
    index -= rest * row_blocks;
    const uint32_t section = Divide(index, together * row_blocks).quotient;
    index -= section * together * row_blocks;
    first_head = rest + section * together;
    width = together;
  }
  const bool by_head = tile.heads_follow && first_head + width != heads;
  const Quotient at = Divide(index, by_head ? row_blocks : width);
  const uint32_t block = by_head ? at.remainder : at.quotient;
  const uint32_t any_head = first_head + (by_head ? at.quotient : at.remainder);
  const uint32_t b = any_head / q_heads, head = any_head - b * q_heads;
  const auto group = static_cast<uint32_t>(tile.problem->group);
  return {static_cast<int>(b), static_cast<int>(head),
          static_cast<int>(Divide(head, group).quotient),
          static_cast<int>(row_blocks - 1 - block)};
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_SCHEDULER_CUH_
