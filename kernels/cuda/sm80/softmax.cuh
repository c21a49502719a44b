#ifndef ATTND_KERNELS_CUDA_SM80_SOFTMAX_CUH_
#define ATTND_KERNELS_CUDA_SM80_SOFTMAX_CUH_

// The online softmax, (E8) and (E9) in kernels/README.md, over accumulators as
// mma leaves them: a lane holds rows lane/4 and lane/4 + 8 of every 16, at two
// of each eight columns. Each lane sums up its own columns; the four lanes of a
// row add up their sums once, at the end.
//
// P = 2^(c (s - m)), where c brings scores to units of log2. For scores that
// Rebase has brought to these units already, c is 1.

#include <cmath>

#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/row.cuh"
#include "kernels/cuda/tile/score.cuh"

namespace attnd::cuda::sm80 {

// The state of 16 * kTiles rows of a warp.
template <int kTiles>
struct OnlineSoftmax {
  float m[kTiles][2];  // the row's largest score so far, without c; -inf: none
  float l[kTiles][2];  // the sum of P over this lane's columns

  __device__ OnlineSoftmax() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      for (int r = 0; r < 2; ++r) {
        m[t][r] = -INFINITY;
        l[t][r] = 0.0f;
      }
    }
  }

  // Turns the scores of 8 * kN more columns into P, and scales l and `o`, which
  // hold the columns before, to the new maximum: (E8) and the first half of
  // (E9).
  template <int kN, int kDimTiles>
  __device__ void Update(float (&s)[kTiles][kN][4],
                         float (&o)[kTiles][kDimTiles][4], float c) {
    float base[kTiles][2], shrink[kTiles][2];
    bool same = true;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float top = m[t][r];
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          top = fmaxf(top, fmaxf(s[t][n][2 * r], s[t][n][2 * r + 1]));
        }
        top = QuadMax(top);
        // A row that has seen nothing takes base 0: -inf + inf would be NaN.
        base[t][r] = top == -INFINITY ? 0.0f : __fmul_rn(top, c);
        // c m is rounded here as in base, so that the factor is exactly 1 where
        // m stays. An fma, whose product is exact, would give a factor near 1.
        shrink[t][r] = ptx::Exp2(__fmul_rn(m[t][r], c) - base[t][r]);
        same = same && m[t][r] == top;
        m[t][r] = top;
      }
    }
    // Past the first few tiles, mostly no row of the warp has a new maximum.
    if (__any_sync(0xffffffff, !same)) Shrink(shrink, o);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; ++i) {
            s[t][n][i] = ptx::Exp2(fmaf(s[t][n][i], c, -base[t][r]));
            sum += s[t][n][i];
          }
        }
        l[t][r] += sum;
      }
    }
  }

  // Scales l and `o` by the factors that Rebase gave, one for each row.
  template <int kDimTiles>
  __device__ void Shrink(const float (&by)[2 * kTiles],
                         float (&o)[kTiles][kDimTiles][4]) {
    float rows[kTiles][2];
#pragma unroll
    for (int row = 0; row < 2 * kTiles; ++row) rows[row / 2][row % 2] = by[row];
    Shrink(rows, o);
  }
  // Makes m the largest scores in natural units, which Rebase keeps in `tops`.
  // A barrier of the warp must lie between the last Rebase and this.
  __device__ void TakeTops(const float* tops) {
#pragma unroll
    for (int row = 0; row < 2 * kTiles; ++row)
      m[row / 2][row % 2] = tops[8 * row];
  }

  // Whether the state of any row of the warp is void: some c s has overflowed,
  // or c m is so large that its rounding error is as large as scores are, or
  // the row has met a NaN. The same answer for all lanes.
  __device__ bool Overflowed(float c) const {
    bool overflowed = false;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        overflowed = overflowed || !isfinite(l[t][r]) ||
                     (m[t][r] != -INFINITY && !(fabsf(m[t][r] * c) < 0x1p20f));
      }
    }
    return __any_sync(0xffffffff, overflowed);
  }

  // Whether any of the warp's first `rows` rows has met no score but -inf:
  // either it sees no column, or all its products were below f32's range. The
  // same answer for all lanes.
  __device__ bool HasUnseen(int rows, int lane) const {
    bool unseen = false;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        unseen = unseen ||
                 (16 * t + lane / 4 + 8 * r < rows && m[t][r] == -INFINITY);
      }
    }
    return __any_sync(0xffffffff, unseen);
  }

 private:
  template <int kDimTiles>
  __device__ void Shrink(const float (&by)[kTiles][2],
                         float (&o)[kTiles][kDimTiles][4]) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        l[t][r] *= by[t][r];
#pragma unroll
        for (int d = 0; d < kDimTiles; ++d) {
          o[t][d][2 * r] *= by[t][r];
          o[t][d][2 * r + 1] *= by[t][r];
        }
      }
    }
  }
};

// Prepares scores of any size, in natural units, for Update with a c of 1: each
// becomes its difference to its row's largest so far, in units of log2, so that
// Update's own m is 0. The largest scores themselves are kept in shared memory:
// `tops` points to that of the lane's first row, those of its other rows follow
// 8 floats apart, and all are -inf at first. `shrink` receives the factors for
// OnlineSoftmax::Shrink. `scores` is [kTiles][kN][4] in local memory, and the
// loops are not unrolled, so that this rare path takes no registers.
template <int kTiles, int kN>
__device__ void Rebase(float* scores, float* tops, int lane,
                       float (&shrink)[2 * kTiles]) {
#pragma unroll 1
  for (int row = 0; row < 2 * kTiles; ++row) {
    float* s = scores + row / 2 * (4 * kN) + row % 2 * 2;
    const float before = tops[8 * row];
    float top = before;
#pragma unroll 1
    for (int n = 0; n < kN; ++n) {
      top = fmaxf(top, fmaxf(s[4 * n], s[4 * n + 1]));
    }
    top = QuadMax(top);
    if (lane % 4 == 0) tops[8 * row] = top;
    const float base = top == -INFINITY ? 0.0f : top;
    shrink[row] = ptx::Exp2((before - base) * kLog2e);
#pragma unroll 1
    for (int n = 0; n < kN; ++n) {
      s[4 * n] = (s[4 * n] - base) * kLog2e;
      s[4 * n + 1] = (s[4 * n + 1] - base) * kLog2e;
    }
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_SOFTMAX_CUH_
