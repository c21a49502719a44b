#ifndef ATTND_KERNELS_CUDA_ROWS_ROW_TILE_CUH_
#define ATTND_KERNELS_CUDA_ROWS_ROW_TILE_CUH_

// A tile of the kernels that backward begins and ends with: kGradientRows rows
// of one q head of one sequence, the work of one block of threads.

#include <cstdint>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda {

inline constexpr int kTileRows = static_cast<int>(kGradientRows);
inline constexpr int kTileThreads = 256;
// Blocks that a multiprocessor runs at once. Each thread loads 128 bytes at a
// time, so these blocks have several times as much in flight as memory's speed
// and latency ask for, and some of them may be finding their tiles or ending.
inline constexpr int kTileBlocks = 4;

// What a block of threads copies to shared memory about its tile.
struct RowTileDescription {
  TileDescription problem;
  DeviceGradients gradients;
};
static_assert(sizeof(DeviceGradients) % 16 == 0 &&
              sizeof(DeviceGradients) / 16 <= kTileThreads);

struct RowTile {
  const DeviceProblem* problem;
  const DeviceSegment* segments;
  const DeviceGradients* gradients;
  uint32_t b, h;  // sequence, and q head
  uint32_t head;  // b * q_heads + h
  int64_t first_row;
  int valid;  // rows of the tile that the sequence has, 0 to kTileRows

  // Where the tile's rows begin among the padded rows of all heads.
  __device__ int64_t PaddedRow() const {
    return head * gradients->padded_rows + first_row;
  }
};

// The tile of this block of threads. For all its threads; it ends with a
// barrier, after which all may read `description`. Blocks have tiles from the
// last to the first, as the main kernel, which runs between, goes from the
// first to the last: what a kernel touched last, and may still be in the L2
// cache, the next touches first.
__device__ inline RowTile OpenRowTile(const LaunchParams& params,
                                      RowTileDescription& description) {
  const std::byte* blob = BlobOf(params);
  TileFinder<kTileThreads> finder(
      params, params.first_tile + (params.num_tiles - 1 - blockIdx.x));
  constexpr int kWords = sizeof(DeviceGradients) / 16;
  if (threadIdx.x < kWords) {
    reinterpret_cast<uint4*>(&description.gradients)[threadIdx.x] =
        At<uint4>(blob, finder.gradients())[threadIdx.x];
  }
  const OpenTile open = finder.Open(description.problem);
  const DeviceProblem& p = *open.problem;
  const Quotient rows = Divide(open.index, open.row_blocks);
  const Quotient head = Divide(rows.quotient, static_cast<uint32_t>(p.q_heads));
  const int64_t first_row = int64_t{rows.remainder} * kTileRows;
  const int64_t q_len = Of(blob, p.q_lens, head.quotient, p.q_len);
  return {&p,
          open.segments,
          &description.gradients,
          head.quotient,
          head.remainder,
          rows.quotient,
          first_row,
          static_cast<int>(
              min(max(q_len - first_row, int64_t{0}), int64_t{kTileRows}))};
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_ROWS_ROW_TILE_CUH_
