#ifndef ATTND_KERNELS_CUDA_SM90_SOFTMAX_CUH_
#define ATTND_KERNELS_CUDA_SM90_SOFTMAX_CUH_

// The online softmax, (E8) and (E9) in kernels/README.md, of the two rows that
// a thread shares with three others, over accumulators as wgmma leaves them.
//
// P = 2^(c (s - m)), where c brings scores to units of log2. m need not be the
// largest score, only near it. So P of a tile does not wait for the tile's
// largest score, it is found from the m of the tiles before; and only where a
// score turns out to be too far above is m moved, and all that was multiplied
// by 2^(-c m) corrected. Too far is where P is above 2^kMostPLog2, or above
// 2^kMostWeightLog2 of the sum: P of the largest score is 1 or one of many, and
// what it loses when it is rounded stays small.

#include <cmath>

#include "kernels/cuda/row.cuh"
#include "kernels/cuda/sm90/ptx.cuh"

namespace attnd::cuda::sm90 {

inline constexpr float kMostPLog2 = 8.0f;
inline constexpr float kMostWeightLog2 = -3.0f;
// Of c m: beyond, what it loses by rounding is itself of the size of scores.
inline constexpr float kMostLog2 = 0x1p20f;

template <int kCount>
__device__ void ScaleRows(float (&o)[kCount], const float (&by)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= by[i % 4 / 2];
}

struct OnlineSoftmax {
  float m[2] = {-INFINITY, -INFINITY};  // not scaled; -inf: nothing seen
  float l[2] = {0.0f, 0.0f};            // this lane's part of the sum
  float most_above[2];                  // m, in units of log2, before it moves

  // What follows from the sums so far. To be called before each tile but the
  // first.
  __device__ void SetMostAbove() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float most = ptx::Log2(QuadSum(l[r])) + kMostWeightLog2;
      most_above[r] =
          m[r] == -INFINITY ? -INFINITY : fmaxf(fminf(most, kMostPLog2), 0.0f);
    }
  }

  // With a row's first tile: m is the largest score.
  template <int kCount>
  __device__ void Begin(const float (&s)[kCount]) {
    float top[2] = {-INFINITY, -INFINITY};
    RaiseTop(s, top);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m[r] = QuadMax(top[r]);
      l[r] = 0.0f;
      most_above[r] = kMostPLog2;  // no score of the tile is
    }
  }

  // Moves m to the largest score, before the scores are exponentiated: where
  // they may be of any size. What was summed up of V is to be multiplied by
  // `shrink`.
  template <int kCount>
  __device__ void Raise(const float (&s)[kCount], float c, float (&shrink)[2]) {
    float top[2] = {m[0], m[1]};
    RaiseTop(s, top);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = QuadMax(top[r]);
      shrink[r] = top[r] == m[r] ? 1.0f : Shrink(m[r], top[r], c);
      m[r] = top[r];
      l[r] *= shrink[r];
    }
  }

  // Scores become P, right after Begin or Raise.
  template <int kCount>
  __device__ void Exponentiate(float (&s)[kCount], float c) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float base = Base(r, c);
      float sum[2] = {0.0f, 0.0f};
#pragma unroll
      for (int n = 0; n < kCount; n += 4) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          s[n + 2 * r + i] = ptx::Exp2(fmaf(s[n + 2 * r + i], c, -base));
          sum[i] += s[n + 2 * r + i];
        }
      }
      l[r] += sum[0] + sum[1];
    }
  }

  // Scores become P, with the m of the tiles before; `top` is what is the
  // largest of this lane's. Whether m is too far below a score, or a sum has
  // overflowed, in a row of the warp: then Move is to be called.
  template <int kCount>
  __device__ bool ExponentiateAhead(float (&s)[kCount], float c,
                                    float (&top)[2]) {
    bool moves = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float base = Base(r, c);
      float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
#pragma unroll
      for (int n = 0; n < kCount; n += 4) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = s[n + 2 * r + i];
          most[i] = fmaxf(most[i], x);
          x = ptx::Exp2(fmaf(x, c, -base));
          sum[i] += x;
        }
      }
      top[r] = fmaxf(most[0], most[1]);
      l[r] += sum[0] + sum[1];
      moves =
          moves || fmaf(top[r], c, -base) > most_above[r] || !(l[r] < INFINITY);
    }
    return __any_sync(0xffffffff, moves);
  }

  // Moves m to `top`, this lane's largest scores, where they are too far above,
  // and corrects P and l. What was summed up of V before is to be multiplied by
  // `shrink`.
  template <int kCount>
  __device__ void Move(float (&top)[2], float c, float (&p)[kCount],
                       float (&shrink)[2]) {
    float shrink_p[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float base = Base(r, c);
      top[r] = QuadMax(top[r]);
      const bool moves = fmaf(top[r], c, -base) > most_above[r];
      shrink_p[r] = moves ? ptx::Exp2(base - __fmul_rn(top[r], c)) : 1.0f;
      shrink[r] = moves ? Shrink(m[r], top[r], c) : 1.0f;
      m[r] = moves ? top[r] : m[r];
      l[r] *= shrink_p[r];
    }
    ScaleRows(p, shrink_p);
  }

  // Whether row r has met scores so large, once multiplied by c, that they
  // overflow, or that what c m loses by rounding is itself of the size of
  // scores: its state is void then. So is that of a row with a NaN. `sum` is l
  // of all lanes.
  __device__ bool Overflowed(int r, float sum, float c) const {
    return !isfinite(sum) ||
           (m[r] != -INFINITY && !(fabsf(m[r] * c) < kMostLog2));
  }

 private:
  // To the largest of this lane's scores of each row, if that is higher.
  template <int kCount>
  __device__ static void RaiseTop(const float (&s)[kCount], float (&top)[2]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      top[i % 4 / 2] = fmaxf(top[i % 4 / 2], s[i]);
    }
  }
  // What scores are exponentiated relative to. Of a row that has seen nothing
  // it is 0: the difference of two infinities would be NaN.
  __device__ float Base(int r, float c) const {
    return m[r] == -INFINITY ? 0.0f : __fmul_rn(m[r], c);
  }
  __device__ static float Shrink(float from, float to, float c) {
    return ptx::Exp2(__fmul_rn(from, c) - __fmul_rn(to, c));
  }
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_SOFTMAX_CUH_
