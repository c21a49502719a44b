#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_SCORE_TILE_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_SCORE_TILE_CUH_

// Of backward: a warp's tile of S and dP, which become P and dS. Both are
// transposed, so that they can be multiplied by dO and Q as they are: as mma
// leaves them, a lane holds columns lane/4 and lane/4 + 8 of every 16, at rows
// 2(lane%4) and 2(lane%4) + 1 of every eight.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/score.cuh"

namespace attnd::cuda::sm80 {

// What is known of the tile's rows; in shared memory, aligned to 16 bytes.
struct RowTerms {
  const float* lse;     // in units of log2, or kHugeLse; +inf: it has no P
  const float* delta;   // less the gradient of LSE
  const ushort2* seen;  // the block's columns that a row sees: [x, y)
};

// -inf for what is masked. `column`: the warp's first one.
template <int kTiles, int kN>
__device__ void Mask(const RowTerms& rows, int column, int lane,
                     float (&s)[kTiles][kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const ushort2 seen = rows.seen[8 * n + 2 * (lane % 4) + i];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int j = column + 16 * t + 8 * r + lane / 4;
          if (j < seen.x || j >= seen.y) s[t][n][2 * r + i] = -INFINITY;
        }
      }
    }
  }
}

// The tile is also worked on by blocks of 16 columns and 8 rows: `x` is one of
// them, `n` says which rows.

// S becomes P, (E12), by the plain rule with its factor.
__device__ inline void Exponentiate(const RowTerms& rows, float factor, int n,
                                    int lane, float (&x)[4]) {
  const float2 lse =
      *reinterpret_cast<const float2*>(rows.lse + 8 * n + 2 * (lane % 4));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = ptx::Exp2(fmaf(x[i], factor, i % 2 == 0 ? -lse.x : -lse.y));
  }
}

// dP becomes dS, (E15).
__device__ inline void Differentiate(const RowTerms& rows, int n, int lane,
                                     const float (&p)[4], float (&x)[4]) {
  const float2 delta =
      *reinterpret_cast<const float2*>(rows.delta + 8 * n + 2 * (lane % 4));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = p[i] * (x[i] - (i % 2 == 0 ? delta.x : delta.y));
  }
}

// Rounds the block to T, into a tile in shared memory whose lines are columns:
// from `column` on, at chunk `chunk` of its rows.
template <class T, class Layout>
__device__ void StoreBlock(const float (&x)[4], uint32_t tile, int column,
                           int chunk, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    ptx::StoreShared4(tile + Layout::Offset(column + 8 * r + lane / 4, chunk) +
                          4 * (lane % 4),
                      ptx::Pack<T>(x[2 * r], x[2 * r + 1]));
  }
}

// The same as Mask and Exponentiate by any rule, and the slopes of (E16).
// Rarely needed, so one by one, by way of local memory, to take no registers
// from what is done always. `natural_lse` is of the tile's rows, in natural
// units; `row` the tile's first one in its sequence, `bias_column` the block's
// first one in a row of the bias.
template <int kTiles, int kN>
__device__ void ExponentiateSlowly(const RowTerms& rows,
                                   const float* natural_lse,
                                   const ScoreRule& rule, bool masked,
                                   int64_t row, int64_t bias_column, int column,
                                   int lane, float (&s)[kTiles][kN][4],
                                   float (&slopes)[kTiles * kN * 4]) {
  constexpr int kCount = kTiles * kN * 4;
  float local[kCount];
  float* flat = &s[0][0][0];
#pragma unroll
  for (int e = 0; e < kCount; ++e) local[e] = flat[e];
#pragma unroll 1
  for (int e = 0; e < kCount; ++e) {
    const int i = 8 * (e / 4 % kN) + 2 * (lane % 4) + e % 2;
    const int j = column + 16 * (e / (4 * kN)) + 8 * (e % 4 / 2) + lane / 4;
    const ushort2 seen = masked
                             ? rows.seen[i]
                             : make_ushort2(0, static_cast<unsigned short>(-1));
    // The bias has no row and no column past the last.
    const bool has_p = j >= seen.x && j < seen.y && rows.lse[i] != INFINITY;
    const float product = local[e];
    local[e] = 0.0f;
    slopes[e] = 0.0f;
    if (has_p) {
      const float s = rule.Natural(product, row + i, bias_column + j);
      local[e] = ptx::Exp2(Log2P(s, natural_lse[i]));
      slopes[e] = rule.Slope(product);
    }
  }
#pragma unroll
  for (int e = 0; e < kCount; ++e) flat[e] = local[e];
}

// P becomes what dP - delta is multiplied by, (E15) and (E16) in one.
template <int kTiles, int kN>
__device__ void MultiplyBySlopes(const float (&slopes)[kTiles * kN * 4],
                                 float (&p)[kTiles][kN][4]) {
  float* flat = &p[0][0][0];
#pragma unroll
  for (int e = 0; e < kTiles * kN * 4; ++e) flat[e] *= slopes[e];
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_SCORE_TILE_CUH_
