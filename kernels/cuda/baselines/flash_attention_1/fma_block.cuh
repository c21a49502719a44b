#ifndef ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_FMA_BLOCK_CUH_
#define ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_FMA_BLOCK_CUH_

// Computes a pair of blocks, of rows and of columns, for f32 inputs in f32.

#include <cstdint>

#include "kernels/cuda/baselines/flash_attention_1/state.cuh"
#include "kernels/mask.h"

namespace attnd::cuda {

class FmaBlock {
 public:
  using Element = float;
  static constexpr int kRows = 16, kColumns = 32, kThreads = 128;

  // Q, K, V and P~ of a pair of blocks; at most 84 KiB.
  static constexpr int SharedBytes(int head_dim, int value_dim) {
    return 4 * ((kRows + kColumns) * Pitch(head_dim) +
                kColumns * Pitch(value_dim) + kRows * Pitch(kColumns));
  }

  __device__ FmaBlock(std::byte* shared, int head_dim, int value_dim)
      : head_dim_(head_dim), value_dim_(value_dim) {
    q_ = reinterpret_cast<float*>(shared);
    k_ = q_ + kRows * Pitch(head_dim);
    v_ = k_ + kColumns * Pitch(head_dim);
    p_ = v_ + kColumns * Pitch(value_dim);
  }

  // These load a block of rows of Q, K or V, [valid, dim] with `stride`
  // elements from row to row; rows from `valid` on become 0. AwaitLoads and a
  // barrier must follow before Update.
  __device__ void LoadQ(const float* q, int64_t stride, int valid) {
    Load<kRows>(q, stride, valid, head_dim_, q_);
  }
  __device__ void LoadK(const float* k, int64_t stride, int valid) {
    Load<kColumns>(k, stride, valid, head_dim_, k_);
  }
  __device__ void LoadV(const float* v, int64_t stride, int valid) {
    Load<kColumns>(v, stride, valid, value_dim_, v_);
  }
  __device__ static void AwaitLoads() {}

  // (E10) on lines 9-13, for kRows rows from i0 on and kColumns columns from j0
  // on, of a segment that begins at the bias's column `bias_column`. Eight
  // threads of one warp share a row.
  __device__ void Update(const HeadState& state, const Scores& scores,
                         const RowIntervals& intervals, int64_t bias_column,
                         int64_t i0, int64_t j0) {
    const int row = threadIdx.x / kPerRow, lane = threadIdx.x % kPerRow;
    const int64_t i = i0 + row;
    Interval seen;  // stays empty for a row past the last
    if (i < intervals.rows) seen = intervals.Row(i);

    float s[kEach];  // columns lane, lane + 8, ...
    Products(row, lane, s);
    float block_m = kMinusInfinity;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int64_t j = j0 + lane + kPerRow * n;
      s[n] = j >= seen.lo && j < seen.hi ? scores(s[n], i, bias_column + j)
                                         : kMinusInfinity;
      block_m = MaxOrNan(block_m, s[n]);
    }
    for (int other = kPerRow / 2; other > 0; other /= 2)
      block_m = MaxOrNan(block_m, __shfl_xor_sync(~0u, block_m, other));
    const bool empty = block_m == kMinusInfinity;  // exp(-inf + inf) is NaN

    float block_l = 0.0f;
    float* p = p_ + row * Pitch(kColumns);
    __syncwarp();  // the row's threads have read P~ of the pair before
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const float value = empty ? 0.0f : expf(s[n] - block_m);
      block_l += value;
      p[lane + kPerRow * n] = value;
    }
    for (int other = kPerRow / 2; other > 0; other /= 2)
      block_l += __shfl_xor_sync(~0u, block_l, other);
    RowUpdate u;
    if (!empty) u = Combine(state.m[i], state.l[i], block_m, block_l);
    __syncwarp();  // the row's threads have written P~, and read m and l
    if (empty) return;
    if (lane == 0) {
      state.m[i] = u.m;
      state.l[i] = u.l;
    }
    if (state.o != nullptr) UpdateOutput(u, p, lane, state.Row(i));
  }

 private:
  static constexpr int kPerRow = kThreads / kRows;  // threads that share a row
  static constexpr int kEach = kColumns / kPerRow;  // columns that a thread has
  static_assert(kPerRow == 8, "a row's threads are of one warp");

  // Floats from row to row in shared memory: odd, so that rows begin in
  // different banks.
  static constexpr int Pitch(int dim) { return dim | 1; }

  template <int kCount>
  __device__ static void Load(const float* from, int64_t stride, int valid,
                              int dim, float* to) {
    for (int e = threadIdx.x; e < kCount * dim; e += kThreads) {
      const int row = e / dim, d = e % dim;
      to[row * Pitch(dim) + d] = row < valid ? from[row * stride + d] : 0.0f;
    }
  }

  // The products q . k of a row and the thread's columns.
  __device__ void Products(int row, int lane, float (&s)[kEach]) const {
    const float* q = q_ + row * Pitch(head_dim_);
    const float* k = k_ + lane * Pitch(head_dim_);
    const int step = kPerRow * Pitch(head_dim_);
#pragma unroll
    for (int n = 0; n < kEach; ++n) s[n] = 0.0f;
    for (int d = 0; d < head_dim_; ++d)
#pragma unroll
      for (int n = 0; n < kEach; ++n) s[n] += q[d] * k[n * step + d];
  }

  // (E10): updates a row of O, [value_dim], four of the thread's columns at a
  // time.
  __device__ void UpdateOutput(const RowUpdate& u, const float* p, int lane,
                               float* o) const {
    constexpr int kAtOnce = 4;
    for (int d0 = lane; d0 < value_dim_; d0 += kAtOnce * kPerRow) {
      float sum[kAtOnce] = {};
      for (int j = 0; j < kColumns; ++j) {
        const float* v = v_ + j * Pitch(value_dim_);
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n)
          if (d0 + kPerRow * n < value_dim_)
            sum[n] += p[j] * v[d0 + kPerRow * n];
      }
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const int d = d0 + kPerRow * n;
        if (d < value_dim_) o[d] = u.keep * o[d] + u.add * sum[n];
      }
    }
  }

  const int head_dim_, value_dim_;
  // In shared memory, rows Pitch apart: Q [kRows, head_dim], K [kColumns,
  // head_dim], V [kColumns, value_dim]; all threads write and read them.
  float *q_, *k_, *v_;
  float* p_;  // P~, [kRows, kColumns]; a row's threads write and read it
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_FMA_BLOCK_CUH_
