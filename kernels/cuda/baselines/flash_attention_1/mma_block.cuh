#ifndef ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_MMA_BLOCK_CUH_
#define ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_MMA_BLOCK_CUH_

// Computes a pair of blocks, of rows and of columns, for f16 and bf16 inputs on
// tensor cores.

#include <cstdint>

#include "kernels/cuda/baselines/flash_attention_1/state.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/mask.h"

namespace attnd::cuda {

template <class T>
class MmaBlock {
 public:
  using Element = T;
  static constexpr int kRows = 64, kColumns = 64, kThreads = 128;

  // Q, K and V of a pair of blocks; at most 99 KiB.
  static constexpr int SharedBytes(int head_dim, int value_dim) {
    return 2 *
           ((kRows + kColumns) * Pitch(head_dim) + kColumns * Pitch(value_dim));
  }

  __device__ MmaBlock(std::byte* shared, int head_dim, int value_dim)
      : head_dim_(head_dim), value_dim_(value_dim) {
    q_ = reinterpret_cast<uint16_t*>(shared);
    k_ = q_ + kRows * Pitch(head_dim);
    v_ = k_ + kColumns * Pitch(head_dim);
  }

  // These load a block of rows of Q, K or V, [valid, dim] with `stride`
  // elements from row to row; rows from `valid` on become 0. AwaitLoads and a
  // barrier must follow before Update.
  __device__ void LoadQ(const T* q, int64_t stride, int valid) {
    Load(q, stride, valid, head_dim_, q_);
  }
  __device__ void LoadK(const T* k, int64_t stride, int valid) {
    Load(k, stride, valid, head_dim_, k_);
  }
  __device__ void LoadV(const T* v, int64_t stride, int valid) {
    Load(v, stride, valid, value_dim_, v_);
  }
  // Waits until all that this thread has loaded is in shared memory.
  __device__ static void AwaitLoads() {
    ptx::CpAsyncCommit();
    ptx::CpAsyncWait<0>();
  }

  // (E10) on lines 9-13, for kRows rows from i0 on and kColumns columns from j0
  // on, of a segment that begins at the bias's column `bias_column`. A warp has
  // 16 rows; each four of its threads (a quad) share two of them, r and r + 8.
  __device__ void Update(const HeadState& state, const Scores& scores,
                         const RowIntervals& intervals, int64_t bias_column,
                         int64_t i0, int64_t j0) {
    const int lane = threadIdx.x % 32;
    const int64_t first = i0 + threadIdx.x / 32 * 16 + lane / 4;
    float s[kTiles][4] = {};
    Products(s);
    uint32_t p[kColumns / 16][4];  // P~ as A operands of mma, 16 columns each
    RowUpdate u[2];
    bool empty[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t i = first + 8 * half;
      Interval seen;  // stays empty for a row past the last
      if (i < intervals.rows) seen = intervals.Row(i);
      const float block_m =
          ScoreRow(scores, seen, bias_column, i, j0 + 2 * (lane % 4), half, s);
      const float block_l = ExpRow(block_m, half, s);
      empty[half] = block_m == kMinusInfinity;
      if (!empty[half])
        u[half] = Combine(state.m[i], state.l[i], block_m, block_l);
    }
    __syncwarp();  // the quads have read m and l
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (empty[half] || lane % 4 != 0) continue;
      state.m[first + 8 * half] = u[half].m;
      state.l[first + 8 * half] = u[half].l;
    }
    if (state.o == nullptr) return;
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      p[n][0] = ptx::Pack<T>(s[2 * n][0], s[2 * n][1]);
      p[n][1] = ptx::Pack<T>(s[2 * n][2], s[2 * n][3]);
      p[n][2] = ptx::Pack<T>(s[2 * n + 1][0], s[2 * n + 1][1]);
      p[n][3] = ptx::Pack<T>(s[2 * n + 1][2], s[2 * n + 1][3]);
    }
    UpdateOutput(state, first, empty, u, p);
  }

 private:
  static constexpr int kTiles = kColumns / 8;  // accumulators of mma across S
  static constexpr int64_t kFar = kColumns;    // past any column of the block

  // Elements from row to row in shared memory: whole steps of mma, and 16 bytes
  // more, so that the rows that one ldmatrix reads lie in different banks.
  static constexpr int Padded(int dim) { return (dim + 15) / 16 * 16; }
  static constexpr int Pitch(int dim) { return Padded(dim) + 8; }

  // Loads 64 rows of `dim` elements to `to`. Rows from `valid` on and columns
  // from `dim` on become 0. Aligned rows are copied 16 bytes at a time, by
  // cp.async.
  __device__ static void Load(const T* from, int64_t stride, int valid, int dim,
                              uint16_t* to) {
    static_assert(kRows == kColumns);
    const uint16_t* bits = reinterpret_cast<const uint16_t*>(from);
    const int padded = Padded(dim);
    if (reinterpret_cast<uintptr_t>(from) % 16 == 0 && stride % 8 == 0) {
      const int chunks = padded / 8;
      for (int e = threadIdx.x; e < kRows * chunks; e += kThreads) {
        const int row = e / chunks, d = e % chunks * 8;
        const int count = row < valid ? min(max(dim - d, 0), 8) : 0;
        ptx::CpAsync16(ptx::SharedAddress(to + row * Pitch(dim) + d),
                       count > 0 ? bits + row * stride + d : bits, 2 * count);
      }
    } else {
      for (int e = threadIdx.x; e < kRows * padded; e += kThreads) {
        const int row = e / padded, d = e % padded;
        to[row * Pitch(dim) + d] =
            row < valid && d < dim ? bits[row * stride + d] : uint16_t{0};
      }
    }
  }

  // s += Q K^T of the warp's rows.
  __device__ void Products(float (&s)[kTiles][4]) const {
    const int lane = threadIdx.x % 32, pitch = Pitch(head_dim_);
    const uint32_t q = ptx::SharedAddress(
        q_ + (threadIdx.x / 32 * 16 + lane % 16) * pitch + lane / 16 * 8);
    const uint32_t k = ptx::SharedAddress(
        k_ + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8);
    for (int d = 0; d < Padded(head_dim_); d += 16) {
      uint32_t a[4];
      ptx::Ldmatrix(a, q + 2 * d);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t b[4];
        ptx::Ldmatrix(b, k + 2 * (16 * n * pitch + d));
        ptx::Mma<T>(s[2 * n], a, b[0], b[1]);
        ptx::Mma<T>(s[2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  // Makes scores of the quad's products of one of its rows, in place, and
  // returns their maximum, m~. `j` is the thread's first column, `half` which
  // of its two rows this is.
  __device__ static float ScoreRow(const Scores& scores, const Interval& seen,
                                   int64_t bias_column, int64_t i, int64_t j,
                                   int half, float (&s)[kTiles][4]) {
    // What the row sees, counted from the thread's first column.
    const int lo = static_cast<int>(min(max(seen.lo - j, int64_t{0}), kFar));
    const int hi = static_cast<int>(min(max(seen.hi - j, int64_t{0}), kFar));
    float m = kMinusInfinity;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[n][2 * half + e];
        const int column = 8 * n + e;
        x = column >= lo && column < hi ? scores(x, i, bias_column + j + column)
                                        : kMinusInfinity;
        m = MaxOrNan(m, x);
      }
    }
    m = MaxOrNan(m, __shfl_xor_sync(~0u, m, 1));
    return MaxOrNan(m, __shfl_xor_sync(~0u, m, 2));
  }

  // Makes P~ of one row's scores, in place, and returns its sum, l~. In an
  // empty row both are 0: exp(-inf + inf) would be NaN.
  __device__ static float ExpRow(float m, int half, float (&s)[kTiles][4]) {
    float l = 0.0f;
    if (m == kMinusInfinity) m = 0.0f;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[n][2 * half + e];
        x = expf(x - m);
        l += x;
      }
    }
    l += __shfl_xor_sync(~0u, l, 1);
    return l + __shfl_xor_sync(~0u, l, 2);
  }

  // (E10): updates the warp's rows of O in memory, 16 columns at a time.
  __device__ void UpdateOutput(const HeadState& state, int64_t first,
                               const bool (&empty)[2], const RowUpdate (&u)[2],
                               const uint32_t (&p)[kColumns / 16][4]) const {
    const int lane = threadIdx.x % 32, pitch = Pitch(value_dim_);
    const uint32_t v =
        ptx::SharedAddress(v_ + lane % 16 * pitch + lane / 16 * 8);
    float* const row[2] = {state.Row(first), state.Row(first + 8)};
    for (int d0 = 0; d0 < value_dim_; d0 += 16) {
      float* at[8];  // where the thread's elements of O are, null if not stored
      float o[8];    // loaded early, so that memory answers during the products
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int half = e / 2 % 2;
        const int d = d0 + e / 4 * 8 + 2 * (lane % 4) + e % 2;
        at[e] = empty[half] || d >= value_dim_ ? nullptr : row[half] + d;
        o[e] = at[e] != nullptr ? *at[e] : 0.0f;
      }
      float pv[2][4] = {};  // P~ V, two accumulators of 8 columns each
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t b[4];
        ptx::LdmatrixTrans(b, v + 2 * (16 * n * pitch + d0));
        ptx::Mma<T>(pv[0], p[n], b[0], b[1]);
        ptx::Mma<T>(pv[1], p[n], b[2], b[3]);
      }
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int half = e / 2 % 2;
        if (at[e] != nullptr)
          *at[e] = u[half].keep * o[e] + u[half].add * pv[e / 4][e % 4];
      }
    }
  }

  const int head_dim_, value_dim_;
  // In shared memory, rows Pitch apart: Q [kRows, head_dim], K [kColumns,
  // head_dim], V [kColumns, value_dim]; all threads write and read them.
  uint16_t *q_, *k_, *v_;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_MMA_BLOCK_CUH_
