#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_ADD_TO_SUMS_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_ADD_TO_SUMS_CUH_

// Adds a wide consumer's part of dQ to the sums in memory.

#include <cstdint>

#include "kernels/cuda/sm90/backward/tile.cuh"
#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/tile/dq_sum.cuh"

namespace attnd::cuda::sm90 {

// Adds d_q, [64, 2 kCount], to the sums of a tile from row `first_row` of the
// tile and column `column` on, atomically. Nobody waits for it.
template <class Config, int kCount>
__device__ void AddToSums(const RowTile& tile, int first_row, int column,
                          const float (&d_q)[kCount]) {
  const int row = first_row + threadIdx.x % 128 / 32 * 16;
  const uint64_t to = ptx::GlobalAddress(
      tile.sums + DqBlock(row, column, Config::kDqDim) + threadIdx.x % 32 * 4);
#pragma unroll
  for (int n = 0; n < kCount / 4; n += 2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = 4 * n + 2 * r;
      ptx::AddGlobal(to + (n / 2 * 256 + r * 128) * sizeof(float), d_q[at],
                     d_q[at + 1], d_q[at + 4], d_q[at + 5]);
    }
  }
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_ADD_TO_SUMS_CUH_
