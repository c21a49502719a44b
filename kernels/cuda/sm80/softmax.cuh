#ifndef ATTND_KERNELS_CUDA_SM80_SOFTMAX_CUH_
#define ATTND_KERNELS_CUDA_SM80_SOFTMAX_CUH_

// The online softmax, (E8) and (E9) in kernels/README.md, over accumulators as
// mma leaves them: a lane holds rows lane/4 and lane/4 + 8 of every 16, at two
// of each eight columns; the four lanes of a row sum up at the end only.
//
// P = 2^(c (s - m)), where c brings scores to units of log2; it is 1 of what
// Rebase has brought there already.

#include <cmath>

#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/row.cuh"
#include "kernels/cuda/tile/score.cuh"

namespace attnd::cuda::sm80 {

// The state of 16 * kTiles rows of a warp.
template <int kTiles>
struct OnlineSoftmax {
  float m[kTiles][2];  // the largest score so far, not scaled; -inf: none
  float l[kTiles][2];  // this lane's part of the sum

  __device__ OnlineSoftmax() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      for (int r = 0; r < 2; ++r) {
        m[t][r] = -INFINITY;
        l[t][r] = 0.0f;
      }
    }
  }

  // Scores of 8 * kN columns become P; what `o` has so far is brought to the
  // new maximum.
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
        // A row that has seen nothing: -inf + inf would be NaN.
        base[t][r] = top == -INFINITY ? 0.0f : __fmul_rn(top, c);
        // Not as one fma, whose exact product would not cancel where m stays.
        shrink[t][r] = ptx::Exp2(__fmul_rn(m[t][r], c) - base[t][r]);
        same = same && m[t][r] == top;
        m[t][r] = top;
      }
    }
    // Mostly no row has a new maximum, once it has seen a few tiles.
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

  // What Rebase leaves to be done to what there is so far.
  template <int kDimTiles>
  __device__ void Shrink(const float (&by)[2 * kTiles],
                         float (&o)[kTiles][kDimTiles][4]) {
    float rows[kTiles][2];
#pragma unroll
    for (int row = 0; row < 2 * kTiles; ++row) rows[row / 2][row % 2] = by[row];
    Shrink(rows, o);
  }
  // After the last Rebase, which a barrier of the warp must follow.
  __device__ void TakeTops(const float* tops) {
#pragma unroll
    for (int row = 0; row < 2 * kTiles; ++row)
      m[row / 2][row % 2] = tops[8 * row];
  }

  // Whether a row of the warp has met scores so large, once multiplied by c,
  // that they overflow, or that what c m loses by rounding is itself of the
  // size of scores: the row's state is void then. So is that of a row with a
  // NaN.
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

  // Whether one of the first `rows` rows has met no score but -inf: it sees
  // nothing, or all its products are below f32's range.
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

// For scores of any size, in natural units, before Update with a c of 1: they
// become their differences to their rows' largest so far, in units of log2. m
// is 0 then; the largest scores of the lane's rows are in shared memory, each 8
// after the one before: -inf at first. `scores` is [kTiles][kN][4], in
// local memory, as loops that are not unrolled take no registers.
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
