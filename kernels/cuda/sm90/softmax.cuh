#ifndef ATTND_KERNELS_CUDA_SM90_SOFTMAX_CUH_
#define ATTND_KERNELS_CUDA_SM90_SOFTMAX_CUH_

// The online softmax, (E8) and (E9) in kernels/README.md, of the two rows that
// a thread shares with three others, over accumulators as wgmma leaves them.
//
// P = 2^(c (s - m)), where c brings scores to units of log2. m need not be the
// largest score, only near it. So P of a tile does not wait for the tile's
// largest score, but is computed with the m of the tiles before. Only where P
// turns out to be too large is m moved, and all that is relative to m
// corrected. Sums of a few P each, which are needed anyway, tell: one is too
// large above kMostP, or above both 1 and twice what the lane has summed up
// before. The second bound keeps P of the largest score at 1 or among several
// of its size, so that little is lost when it is rounded.

#include <cmath>

#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/tile/row.cuh"
#include "kernels/cuda/tile/score.cuh"

namespace attnd::cuda::sm90 {

inline constexpr float kMostP = 256.0f;  // f16 holds far more
// The largest |c m| that is trusted: of a larger one the rounding alone would
// count beside the differences of scores.
inline constexpr float kMostLog2 = 0x1p20f;

// Multiplies each of a thread's two rows by its own factor.
template <int kCount>
__device__ void ScaleRows(float (&o)[kCount], const float (&by)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= by[i % 4 / 2];
}

struct OnlineSoftmax {
  float m[2] = {-INFINITY, -INFINITY};  // not scaled; -inf: nothing seen
  float l[2] = {0.0f, 0.0f};            // this lane's part of the sum
  float most[2];  // m moves where a sum of P is above this

  // Sets `most` from the sums so far, before each tile but the first.
  __device__ void SetMost() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r] = fminf(fmaxf(2.0f * l[r], 1.0f), kMostP);
    }
  }
  // Whether a row of the warp has seen nothing yet.
  __device__ bool HasUnseen() const {
    return __any_sync(0xffffffff, fminf(m[0], m[1]) == -INFINITY);
  }

  // Sets m to the largest score of the tile, so that P is at most 1: of all
  // rows if this is their `first` tile, else of those that have seen nothing
  // yet.
  template <int kCount>
  __device__ void Begin(const float (&s)[kCount], bool first) {
    float top[2] = {-INFINITY, -INFINITY};
    RaiseTop(s, top);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = QuadMax(top[r]);
      const bool begins = first || m[r] == -INFINITY;
      m[r] = begins ? top[r] : m[r];
      l[r] = first ? 0.0f : l[r];
      most[r] = begins ? kMostP : most[r];
    }
  }

  // (E8) of the slow path: scores are in natural units and may be of any size.
  // Moves m to the largest and turns scores into P. The caller must multiply O
  // by `shrink`.
  template <int kCount>
  __device__ void RaiseAndExponentiate(float (&s)[kCount], float (&shrink)[2]) {
    float top[2] = {m[0], m[1]};
    RaiseTop(s, top);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = QuadMax(top[r]);
      shrink[r] = top[r] == m[r] ? 1.0f : ptx::Exp2((m[r] - top[r]) * kLog2e);
      m[r] = top[r];
      l[r] *= shrink[r];
      const float base = top[r] == -INFINITY ? 0.0f : top[r];
#pragma unroll
      for (int n = 0; n < kCount; n += 4) {
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i)
          s[n + i] = (s[n + i] - base) * kLog2e;
      }
      ExponentiateRow(s, r, 1.0f, 0.0f);
    }
  }

  // Turns scores into P, right after Begin.
  template <int kCount>
  __device__ void Exponentiate(float (&s)[kCount], float c) {
#pragma unroll
    for (int r = 0; r < 2; ++r) ExponentiateRow(s, r, c, Base(r, c));
  }

  // Turns scores into P, with the m of the tiles before. Returns whether P may
  // be too large in a row of the warp: then Move must be called.
  template <int kCount>
  __device__ bool ExponentiateAhead(float (&s)[kCount], float c) {
    bool above = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = ExponentiateRow(s, r, c, Base(r, c));
      above = above || sum > most[r];
    }
    return __any_sync(0xffffffff, above);
  }

  // In rows in which P is too large, moves m to the largest score, which
  // follows from the largest P, and corrects P and l, (E8). The caller must
  // multiply O by `shrink`, (E9).
  //
  // P may be anything that f32 holds, and above 2^126 the factor that brings it
  // to 1 is no normal number: Exp2 makes 0 of it, which would make 0 of P, too.
  // The row counts as overflowed then.
  template <int kCount>
  __device__ void Move(float c, float (&p)[kCount], float (&shrink)[2]) {
    float top[2] = {0.0f, 0.0f};
    RaiseTop(p, top);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool moves = QuadMax(top[r] > most[r] ? 1.0f : 0.0f) > 0.0f;
      const float base = Base(r, c);
      const float by = ptx::Log2(QuadMax(top[r])) * ptx::Reciprocal(c);
      m[r] = moves ? m[r] + by : m[r];
      shrink[r] = moves ? ptx::Exp2(base - Base(r, c)) : 1.0f;
      l[r] = shrink[r] == 0.0f ? INFINITY : l[r] * shrink[r];
    }
    ScaleRows(p, shrink);
  }

  // Whether the state of row r is worth nothing, and its tile must be done
  // again: scores, once multiplied by c, have overflowed, |c m| is not below
  // kMostLog2, or there was a NaN. `sum` is l of the row's four lanes together.
  __device__ bool Overflowed(int r, float sum, float c) const {
    return !isfinite(sum) ||
           (m[r] != -INFINITY && !(fabsf(m[r] * c) < kMostLog2));
  }

 private:
  // Turns the scores of row r into P, sums them up in four sums, of which it
  // returns the largest, and adds these to l. All tiles are summed up here: the
  // order of a sum shows in its last bit, which must not depend on whether a
  // tile is a block's first or comes after another.
  template <int kCount>
  __device__ float ExponentiateRow(float (&s)[kCount], int r, float c,
                                   float base) {
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int n = 0; n < kCount; n += 4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& x = s[n + 2 * r + i];
        x = ptx::Exp2(fmaf(x, c, -base));
        sum[n / 4 % 2 * 2 + i] += x;
      }
    }
    l[r] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
    return fmaxf(fmaxf(sum[0], sum[1]), fmaxf(sum[2], sum[3]));
  }
  // Raises `top` to the largest of this lane's scores of each row.
  template <int kCount>
  __device__ static void RaiseTop(const float (&s)[kCount], float (&top)[2]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      top[i % 4 / 2] = fmaxf(top[i % 4 / 2], s[i]);
    }
  }
  // c m, rounded, which is subtracted from c s. 0 if the row has seen nothing:
  // the difference of two infinities would be NaN.
  __device__ float Base(int r, float c) const {
    return m[r] == -INFINITY ? 0.0f : __fmul_rn(m[r], c);
  }
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_SOFTMAX_CUH_
