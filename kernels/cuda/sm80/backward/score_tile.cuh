#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_SCORE_TILE_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_SCORE_TILE_CUH_

// A warp's tile of S and dP in backward, and how they become P and dS. Both are
// transposed, so that they can be multiplied by dO and Q as they are. As mma
// leaves them, a lane holds columns lane/4 and lane/4 + 8 of every 16, at rows
// 2(lane%4) and 2(lane%4) + 1 of every eight: [kTiles][kN][4] are 16 * kTiles
// columns by 8 * kN rows.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/score.cuh"

namespace attnd::cuda::sm80 {

// What is known of the tile's rows: arrays of 8 * kN elements in shared memory,
// aligned to 16 bytes, which RowLoader has filled.
struct RowTerms {
  const float* lse;  // in units of log2, or kHugeLse; +inf where a row has no P
  const float* delta;   // (E11) less the gradient of LSE
  const ushort2* seen;  // columns [x, y) of the block that a row sees
};

// Makes -inf the scores that are masked. `column` is the warp's first column in
// the block.
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

// The functions below work on a block of 16 columns and 8 rows of the tile,
// `x`; `n` says which rows.

// (E12): S becomes P, where scores are plain. `factor` is ScoreRule's.
__device__ inline void Exponentiate(const RowTerms& rows, float factor, int n,
                                    int lane, float (&x)[4]) {
  const float2 lse =
      *reinterpret_cast<const float2*>(rows.lse + 8 * n + 2 * (lane % 4));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = ptx::Exp2(fmaf(x[i], factor, i % 2 == 0 ? -lse.x : -lse.y));
  }
}

// (E15): dP, in `x`, becomes dS.
__device__ inline void Differentiate(const RowTerms& rows, int n, int lane,
                                     const float (&p)[4], float (&x)[4]) {
  const float2 delta =
      *reinterpret_cast<const float2*>(rows.delta + 8 * n + 2 * (lane % 4));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = p[i] * (x[i] - (i % 2 == 0 ? delta.x : delta.y));
  }
}

// Rounds the block to T and writes it to a tile in shared memory, [columns,
// rows]: to columns from `column` on, at chunk `chunk` of the rows.
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

// Does the work of Mask and Exponentiate for a whole tile and any rule, and
// finds the slopes of (E16). As it is rare it goes element by element, by way
// of local memory, to take no registers from the usual path. `natural_lse` is
// the LSE of the tile's rows in natural units, `row` the tile's first row in
// its sequence, `bias_column` the bias's column at which the block begins.
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
    // Elements without P are skipped, as the bias must not be read past its
    // last row or column.
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

// Multiplies P by the slopes, so that Differentiate, (E15), gives dX of (E16).
template <int kTiles, int kN>
__device__ void MultiplyBySlopes(const float (&slopes)[kTiles * kN * 4],
                                 float (&p)[kTiles][kN][4]) {
  float* flat = &p[0][0][0];
#pragma unroll
  for (int e = 0; e < kTiles * kN * 4; ++e) flat[e] *= slopes[e];
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_SCORE_TILE_CUH_
