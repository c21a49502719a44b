#ifndef ATTND_KERNELS_CUDA_SM80_EPILOGUE_CUH_
#define ATTND_KERNELS_CUDA_SM80_EPILOGUE_CUH_

// Takes a warp's accumulators to O and LSE in memory. Accumulators are
// [kTiles][kDimTiles][4] as mma leaves them: 16 * kTiles rows of 8 * kDimTiles
// columns.

#include <cstdint>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/sm80/softmax.cuh"
#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/element.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/row.cuh"
#include "kernels/cuda/tile/row_before.cuh"

namespace attnd::cuda::sm80 {

// The end of (E9), and (E7): divides the accumulators by their rows' sums,
// which makes them O, and gives the LSE of the lane's rows. `scale` brings
// scores to natural units, as c brings them to units of log2. Where one score
// is all that counts in a row, the row's LSE has the bits that backward finds
// for that score. Rows that saw nothing, and rows from `valid` on, get O = 0
// and LSE = -inf.
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
          // A product with the weight 0 would not do: an empty row's sums may
          // be NaN, as 0 * NaN is where V holds one.
          o[t][d][i] = empty ? 0.0f : o[t][d][i] * weight;
        }
      }
    }
  }
}

// The lane's row r, 0 or 1, of 16 becomes what `merge` says. Of `before` the
// first `dim` columns are read, where it counts.
template <int kDimTiles>
__device__ void AddWeighted(const RowMerge& merge, int r, int dim, int lane,
                            float (&o)[kDimTiles][4]) {
  if (merge.before == nullptr) return;
#pragma unroll
  for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = 8 * d + 2 * (lane % 4) + i;
      if (column >= dim) continue;
      float& x = o[d][2 * r + i];
      x = fmaf(merge.weight_before, merge.before[column], merge.weight * x);
    }
  }
}

// Stores rows [first, end) of a warp's 16 * kTiles rows, each lane the elements
// that it holds. `to` is where the warp's row 0 goes, [rows, dim] with `stride`
// elements from row to row.
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

// The same for 16-bit outputs whose rows are aligned to 16 bytes and `dim` a
// multiple of 8: in pieces of 16 bytes, by way of `staging`, a tile of
// 16 * kTiles rows in shared memory that only this warp writes and reads.
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
  __syncwarp();  // all lanes have written their elements
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
