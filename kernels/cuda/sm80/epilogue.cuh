#ifndef ATTND_KERNELS_CUDA_SM80_EPILOGUE_CUH_
#define ATTND_KERNELS_CUDA_SM80_EPILOGUE_CUH_

// From accumulators to O and LSE in memory.

#include <cstdint>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/sm80/softmax.cuh"
#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/element.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/row.cuh"

namespace attnd::cuda::sm80 {

// Divides what a warp has of 16 * kTiles rows by their sums, which makes O, and
// gives each row's LSE. `scale` brings scores to natural units, as c does to
// those of log2: LSE of a row in which one score is all that counts is that
// score as backward finds it, to the bit. Rows that saw nothing, and those from
// `valid` on, become 0 and -inf.
template <int kTiles, int kDimTiles>
__device__ void Finish(OnlineSoftmax<kTiles>& softmax, float scale, float c,
                       int valid, int lane, float (&o)[kTiles][kDimTiles][4],
                       float (&lse)[kTiles][2]) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float l = QuadSum(softmax.l[t][r]);
      const bool empty = l == 0.0f || 16 * t + lane / 4 + 8 * r >= valid;
      const float weight = empty ? 0.0f : 1.0f / l;
      const float m = softmax.m[t][r];
      lse[t][r] =
          empty ? -INFINITY
                : __fmul_rn(m, scale) + fmaf(-kLn2, LostOfBase(m, c), logf(l));
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          // Not by the weight: 0 * NaN, of rows that nobody sees.
          o[t][d][i] = empty ? 0.0f : o[t][d][i] * weight;
        }
      }
    }
  }
}

// Rows [first, end) of a warp's 16 * kTiles, each lane what it holds of them.
template <class Out, int kTiles, int kDimTiles>
__device__ void StoreElements(const float (&o)[kTiles][kDimTiles][4], Out* to,
                              int64_t stride, int first, int end, int dim,
                              int lane) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 16 * t + lane / 4 + 8 * r;
      if (row < first || row >= end) continue;
      Out* at = to + row * stride;
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = 8 * d + 2 * (lane % 4) + i;
          if (column < dim) at[column] = FromFloat<Out>(o[t][d][2 * r + i]);
        }
      }
    }
  }
}

// The same for 16-bit outputs whose rows are aligned: by way of the warp's own
// rows of `staging`, a tile in shared memory, in pieces of 16 bytes.
template <class T, int kDim, int kTiles>
__device__ void StoreRows(const float (&o)[kTiles][kDim / 8][4],
                          uint32_t staging, T* to, int64_t stride, int first,
                          int end, int dim, int lane) {
  using Layout = TileLayout<kDim>;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        ptx::StoreShared4(staging +
                              Layout::Offset(16 * t + lane / 4 + 8 * r, d) +
                              4 * (lane % 4),
                          ptx::Pack<T>(o[t][d][2 * r], o[t][d][2 * r + 1]));
      }
    }
  }
  __syncwarp();
  constexpr int kAcross = Layout::kChunks;
#pragma unroll 4
  for (int i = lane; i < 16 * kTiles * kAcross; i += 32) {
    const int row = i / kAcross, chunk = i % kAcross;
    if (row < first || row >= end || 8 * chunk >= dim) continue;
    const uint4 data = ptx::LoadShared16(staging + Layout::Offset(row, chunk));
    *reinterpret_cast<uint4*>(to + row * stride + 8 * chunk) = data;
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_EPILOGUE_CUH_
