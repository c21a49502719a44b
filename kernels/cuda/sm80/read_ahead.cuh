#ifndef ATTND_KERNELS_CUDA_SM80_READ_AHEAD_CUH_
#define ATTND_KERNELS_CUDA_SM80_READ_AHEAD_CUH_

// What a block that decodes reads before it knows what its tile is. Finding
// that out takes thousands of cycles, and as all blocks of a launch begin at
// once, memory would be idle meanwhile.

#include <cstdint>

#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/decode_tile.cuh"
#include "kernels/cuda/sm80/query.cuh"
#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/open_tile.cuh"

namespace attnd::cuda::sm80 {

// The tiles of columns whose copies a warp has begun, in slots 0, 1, ... of its
// ring. The problem has one segment.
struct TilesAhead {
  int64_t column = 0;  // first column of the tile in slot 0
  int count = 0;       // tiles
};

// Starts reading what a warp will need, as params.ahead describes it: loads Q
// to registers, then begins copying K and V of as many tiles as its ring has
// slots. Commits one group of copies for each slot, empty where no whole tile
// is left. `ring` is the warp's own: kStages slots of a tile of K and one of V,
// in shared memory.
template <class Config>
__device__ TilesAhead LoadAhead(const LaunchParams& params, uint32_t ring,
                                int warp, int lane,
                                uint32_t (&q)[Config::kDim / 16][4]) {
  using T = typename Config::T;
  constexpr int kDim = Config::kDim, kCols = Config::kCols;
  constexpr int kStep = kCols * Config::kWarps;
  const ReadAhead& ahead = params.ahead;
  const DecodePlace place = PlaceOf(
      static_cast<uint32_t>(params.first_tile) + blockIdx.x, ahead.kv_heads,
      static_cast<uint32_t>(params.first_run.row_blocks),
      static_cast<uint32_t>(params.first_run.parts));
  const uint32_t first_row = place.row_block * kDecodeTile;
  // Q is read first: behind the copies, its loads would wait for all of them.
  LoadQ<kDim, true>(
      QueryRows<T>(ahead.q, place.b, place.kv_head, ahead.group, first_row),
      static_cast<int>(min(ahead.rows - first_row, kDecodeTile)), kDim, lane,
      q);
  TilesAhead tiles;
  int64_t column = place.part * ahead.part_columns + warp * kCols;
  tiles.column = column;
  const auto from = [&](const ConstTensorView& view) {
    return static_cast<const T*>(view.data) + place.b * view.batch_stride +
           place.kv_head * view.head_stride + column * view.token_stride;
  };
  const T* k = from(ahead.k);
  const T* v = from(ahead.v);
#pragma unroll
  for (int i = 0; i < Config::kStages; ++i) {
    if (column + kCols <= ahead.columns) {
      LoadWholeTile<kDim, kCols, 32, Reads::kOnce>(ring, k,
                                                   ahead.k.token_stride, lane);
      LoadWholeTile<kDim, kCols, 32, Reads::kOnce>(
          ring + TileLayout<kDim>::Bytes(kCols), v, ahead.v.token_stride, lane);
      ++tiles.count;
    }
    ptx::CpAsyncCommit();
    ring += 2 * TileLayout<kDim>::Bytes(kCols);
    column += kStep;
    k += kStep * ahead.k.token_stride;
    v += kStep * ahead.v.token_stride;
  }
  return tiles;
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_READ_AHEAD_CUH_
