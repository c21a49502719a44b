#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_COPY_ROWS_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_COPY_ROWS_CUH_

// Copies, by a warp, a tile that the copy engine cannot load, as it does not
// know where a sequence ends. It takes fewer registers than forward's CopyRows.

#include <cstdint>

#include "kernels/cuda/sm90/ptx.cuh"

namespace attnd::cuda::sm90 {

// Copies rows of `dim` 16-bit elements, `stride` elements apart, to the tile
// [kTileRows, 64 kPanels] at `tile`. Rows from `valid` on and columns from
// `dim` on become 0.
template <int kPanels, int kTileRows>
__device__ void CopyRowsAsync(uint32_t tile, const void* from, int64_t stride,
                              int valid, int dim, int lane) {
  constexpr int kChunks = 8 * kPanels;
  constexpr int kRowsAtOnce = 32 / kChunks;  // rows for a warp at once
  static_assert(kRowsAtOnce > 0);
  const int chunk = lane % kChunks;
  int row = lane / kChunks;
  if (8 * chunk >= dim) valid = 0;
  const auto* next =
      static_cast<const uint16_t*>(from) + row * stride + 8 * chunk;
  if (row == kRowsAtOnce) row = kTileRows;  // such lanes are too many
  tile += chunk / 8 * kTileRows * 128;
#pragma unroll 1
  for (; row < kTileRows; row += kRowsAtOnce) {
    cuda::ptx::CpAsync16(tile + row * 128 + ((chunk ^ row) % 8) * 16, next,
                         row < valid ? 16 : 0);
    next += kRowsAtOnce * stride;
  }
  cuda::ptx::CpAsyncCommit();
  cuda::ptx::CpAsyncWait<0>();
  ptx::FenceAsyncProxy();
  __syncwarp();
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_COPY_ROWS_CUH_
