#ifndef ATTND_KERNELS_CUDA_SM80_PRODUCTS_CUH_
#define ATTND_KERNELS_CUDA_SM80_PRODUCTS_CUH_

// A warp's two products on tensor cores. `q`, `k` and `v` are addresses of
// tiles in shared memory, laid out as in tile.cuh.

#include <cstdint>

#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"

namespace attnd::cuda::sm80 {

// The products of (E1), S = Q K^T: 16 * kTiles rows of Q, from row `first_row`
// of tile `q` on, by all 8 * kN rows of tile `k`.
template <class T, int kDim, int kTiles, int kN>
__device__ void MultiplyQK(uint32_t q, int first_row, uint32_t k, int lane,
                           float (&s)[kTiles][kN][4]) {
  using Layout = TileLayout<kDim>;
  static_assert(kN % 2 == 0);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[t][n][i] = 0.0f;
    }
  }
  // The row and chunk whose address this lane gives to ldmatrix. For A, lanes
  // 0-15 name rows 0-15 at the first 8 columns, lanes 16-31 the same rows at
  // the next 8. For B, lanes 0-7 and 8-15 name 8 rows of K at the first 8 and
  // the next 8 columns, lanes 16-31 likewise the next 8 rows.
  q += Layout::Offset(first_row + (lane & 15), lane >> 4);
  k += Layout::Offset((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    uint32_t a[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      ptx::Ldmatrix(a[t], Layout::Step(q, 2 * d) + Layout::Bytes(16 * t));
    }
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t b[4];
      ptx::Ldmatrix(b, Layout::Step(k, 2 * d) + Layout::Bytes(8 * n));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        ptx::Mma<T>(s[t][n], a[t], b[0], b[1]);
        ptx::Mma<T>(s[t][n + 1], a[t], b[2], b[3]);
      }
    }
  }
}

// (E9): O += P V, with P rounded to T, for all 8 * kN rows of tile `v`.
template <class T, int kDim, int kTiles, int kN>
__device__ void AddPV(const float (&p)[kTiles][kN][4], uint32_t v, int lane,
                      float (&o)[kTiles][kDim / 8][4]) {
  using Layout = TileLayout<kDim>;
  // For B, transposed as it is loaded, lanes 0-15 name 16 rows of V at the
  // first 8 columns, lanes 16-31 the same rows at the next 8.
  v += Layout::Offset(lane & 15, lane >> 4);
#pragma unroll
  for (int n = 0; n < kN; n += 2) {
    // Two accumulators of S side by side, rounded, are one A operand: mma has C
    // and A in the same lanes.
    uint32_t a[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      a[t][0] = ptx::Pack<T>(p[t][n][0], p[t][n][1]);
      a[t][1] = ptx::Pack<T>(p[t][n][2], p[t][n][3]);
      a[t][2] = ptx::Pack<T>(p[t][n + 1][0], p[t][n + 1][1]);
      a[t][3] = ptx::Pack<T>(p[t][n + 1][2], p[t][n + 1][3]);
    }
#pragma unroll
    for (int d = 0; d < kDim / 8; d += 2) {
      uint32_t b[4];
      ptx::LdmatrixTrans(b, Layout::Step(v, d) + Layout::Bytes(8 * n));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        ptx::Mma<T>(o[t][d], a[t], b[0], b[1]);
        ptx::Mma<T>(o[t][d + 1], a[t], b[2], b[3]);
      }
    }
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_PRODUCTS_CUH_
