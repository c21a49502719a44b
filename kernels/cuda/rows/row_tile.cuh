#ifndef ATTND_KERNELS_CUDA_ROWS_ROW_TILE_CUH_
#define ATTND_KERNELS_CUDA_ROWS_ROW_TILE_CUH_

// A tile of the kernels that backward begins and ends with: kGradientRows rows
// of one head of one sequence, which a block of threads has.

#include <cstdint>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda {

inline constexpr int kTileRows = static_cast<int>(kGradientRows);
inline constexpr int kTileThreads = 256;
// Of a multiprocessor. With 128 bytes under way for each thread that is several
// times what memory's speed and latency ask for, so that some blocks may be
// finding their tiles or ending meanwhile.
inline constexpr int kTileBlocks = 4;

// In shared memory.
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
  uint32_t b, h;
  uint32_t head;  // among the heads of all sequences
  int64_t first_row;
  int valid;  // rows that the sequence has, 0..kTileRows

  // Where the tile's rows begin among padded rows of all heads.
  __device__ int64_t PaddedRow() const {
    return head * gradients->padded_rows + first_row;
  }
};

// For all threads of a block. Blocks have the tiles from the last to the first,
// where the kernel between, which adds to dQ, goes from the first to the last:
// what was touched last, and may still be in the L2 cache, is touched next.
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
