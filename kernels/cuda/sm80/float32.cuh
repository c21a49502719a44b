#ifndef ATTND_KERNELS_CUDA_SM80_FLOAT32_CUH_
#define ATTND_KERNELS_CUDA_SM80_FLOAT32_CUH_

// Forward for f32 inputs, as in FlashAttention-2. It runs on the ordinary f32
// units, as one pass of TF32 would lose half of the digits. There are 16 x 16
// threads: thread (y, x) has rows 4 y to 4 y + 3 of S and O, at columns 4 x to
// 4 x + 3 of every 64.

#include <cstdint>

#include "kernels/cuda/sm80/column_walk.cuh"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/epilogue.cuh"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/row_before.cuh"
#include "kernels/cuda/tile/score.cuh"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda::sm80 {

template <int kDim_>
struct Float32Config {
  static constexpr int kDim = kDim_;  // a multiple of 64
  static constexpr int kRows = 64, kCols = 64, kThreads = 256;
  // How many columns of K, and rows of V, are in shared memory at a time.
  static constexpr int kDimStep = 32, kColStep = 16;
};

// A block's shared memory. All threads write the matrices and read them after a
// barrier; thread 0 writes block and view.
template <class Config>
struct Float32Shared {
  static constexpr int kDim = Config::kDim;
  float q[kDim][Config::kRows];           // Q, transposed
  float p[Config::kCols][Config::kRows];  // P, transposed
  union {
    float k[Config::kDimStep][Config::kCols];  // a piece of K, transposed
    float v[Config::kColStep][kDim];           // a piece of V
  };
  TileDescription description;
  RowBlock block;
  SegmentView<float> view;  // the segment worked on
};

template <class Config>
constexpr int Float32SharedBytes() {
  return static_cast<int>(sizeof(Float32Shared<Config>));
}

template <class Config>
class Float32 {
 public:
  static constexpr int kDim = Config::kDim, kRows = Config::kRows,
                       kCols = Config::kCols, kThreads = Config::kThreads;
  static constexpr int kAcross = kDim / 64;  // groups of 64 columns of O

  __device__ explicit Float32(std::byte* memory)
      : shared_(*reinterpret_cast<Float32Shared<Config>*>(memory)),
        row_(threadIdx.x / 16 * 4),
        column_(threadIdx.x % 16 * 4) {}

  // Computes the tile `index` of the launch; tiles are numbered as Prefill's.
  __device__ void Run(const LaunchParams& params, int64_t index) {
    const OpenTile tile =
        FindTile<Config::kThreads>(params, index, shared_.description);
    const Quotient rows = Divide(tile.index, tile.row_blocks);
    const Quotient head =
        Divide(rows.quotient, static_cast<uint32_t>(tile.problem->q_heads));
    const DeviceProblem& p = *tile.problem;
    const int64_t b = head.quotient, h = head.remainder;
    const int64_t first_row = (tile.row_blocks - 1 - rows.remainder) * kRows;
    const Sequence sequence = tile.sequence(BlobOf(params), b);
    const int valid = static_cast<int>(
        min(max(sequence.q_len - first_row, int64_t{0}), int64_t{kRows}));
    if (threadIdx.x == 0) {
      shared_.block = {sequence,  h / p.group,
                       first_row, first_row + valid - 1,
                       0,         sequence.kv_len};
    }
    if (valid > 0) LoadQ(p, b, h, first_row, valid);
    __syncthreads();  // thread 0 has written the block, and all threads Q
    if (valid > 0) Loop(MakeScoreRule(p, b, h), p);
    Store(sequence, h, first_row, valid);
  }

 private:
  // Loads Q, transposed; rows from `valid` on become 0.
  __device__ void LoadQ(const DeviceProblem& p, int64_t b, int64_t h,
                        int64_t first_row, int valid) {
    const auto* q = static_cast<const float*>(p.q.data) + b * p.q.batch_stride +
                    h * p.q.head_stride + first_row * p.q.token_stride;
    for (int i = threadIdx.x; i < kRows * kDim; i += kThreads) {
      const int row = i / kDim, d = i % kDim;
      shared_.q[d][row] =
          row < valid && d < p.head_dim ? q[row * p.q.token_stride + d] : 0.0f;
    }
  }

  // Visits all tiles of columns: o_, m_ and l_ become the rows' a, m and l.
  __device__ void Loop(const ScoreRule& rule, const DeviceProblem& p) {
    ColumnWalk<kCols> walk;
    int segment = -1;
    Interval seen[4];  // columns of the segment that the thread's rows see
    while (walk.Next(shared_.block, threadIdx.x == 0, shared_.view)) {
      __syncthreads();  // thread 0 has written the view
      if (walk.segment() != segment) {
        segment = walk.segment();
        FindSeen(segment, seen);
      }
      const SegmentView<float>& view = shared_.view;
      const int64_t column = walk.column();
      const int left = static_cast<int>(min(view.len - column, int64_t{kCols}));
      float s[4][4] = {};
      MultiplyQK(view.k + column * view.k_stride, view.k_stride, left,
                 p.head_dim, s);
      Softmax(rule, column, seen, s);
      AddPV(view.v + column * view.v_stride, view.v_stride, left, p.value_dim);
    }
  }

  __device__ void FindSeen(int segment, Interval (&seen)[4]) const {
    const RowBlock& block = shared_.block;
    const RowIntervals rows = block.sequence.Intervals(segment);
    for (int r = 0; r < 4; ++r) {
      const int64_t row = block.first_row + row_ + r;
      seen[r] = row <= block.last_row ? rows.Row(row) : Interval{};
    }
  }

  // (E1): s += Q K^T. The tile of K is `k`, [kCols, dim], of which the first
  // `left` rows may be read; the others count as 0.
  __device__ void MultiplyQK(const float* k, int64_t stride, int left, int dim,
                             float (&s)[4][4]) {
    constexpr int kStep = Config::kDimStep;
    for (int first = 0; first < dim; first += kStep) {
      for (int i = threadIdx.x; i < kCols * kStep; i += kThreads) {
        const int j = i / kStep, d = i % kStep;
        shared_.k[d][j] =
            j < left && first + d < dim ? k[j * stride + first + d] : 0.0f;
      }
      __syncthreads();  // all threads have written the piece of K
#pragma unroll 8
      for (int d = 0; d < kStep; ++d) {
        float x[4], y[4];
        Load4(&shared_.q[first + d][row_], x);
        Load4(&shared_.k[d][column_], y);
        AddOuter(x, y, s);
      }
      __syncthreads();  // all threads have read it
    }
  }

  // (E2), (E8) and the first half of (E9): turns products into P, in shared
  // memory, and scales l_ and o_, which hold the columns before, to the new
  // maximum.
  __device__ void Softmax(const ScoreRule& rule, int64_t column,
                          const Interval (&seen)[4], float (&s)[4][4]) {
    const int64_t bias_column = shared_.view.bias_column + column;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float top = m_[r];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t j = column + column_ + i;
        s[r][i] =
            j >= seen[r].lo && j < seen[r].hi
                ? rule.Natural(s[r][i], shared_.block.first_row + row_ + r,
                               bias_column + column_ + i)
                : -INFINITY;
        top = fmaxf(top, s[r][i]);
      }
#pragma unroll
      for (int step = 1; step < 16; step *= 2) {
        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, step));
      }
      const float base = top == -INFINITY ? 0.0f : top;
      const float shrink = expf(m_[r] - base);
      m_[r] = top;
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[r][i] = expf(s[r][i] - base);
        sum += s[r][i];
      }
      l_[r] = l_[r] * shrink + sum;
#pragma unroll
      for (int c = 0; c < kAcross; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o_[c][r][i] *= shrink;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<float4*>(&shared_.p[column_ + i][row_]) =
          make_float4(s[0][i], s[1][i], s[2][i], s[3][i]);
    }
  }

  // (E9): o_ += P V. The tile of V is `v`, [kCols, dim], of which the first
  // `left` rows may be read; the others count as 0.
  __device__ void AddPV(const float* v, int64_t stride, int left, int dim) {
    constexpr int kStep = Config::kColStep;
    for (int first = 0; first < kCols; first += kStep) {
      for (int i = threadIdx.x; i < kStep * kDim; i += kThreads) {
        const int j = i / kDim, d = i % kDim;
        shared_.v[j][d] =
            first + j < left && d < dim ? v[(first + j) * stride + d] : 0.0f;
      }
      __syncthreads();  // all threads have written P and the piece of V
#pragma unroll 4
      for (int j = 0; j < kStep; ++j) {
        float x[4], y[4];
        Load4(&shared_.p[first + j][row_], x);
#pragma unroll
        for (int c = 0; c < kAcross; ++c) {
          Load4(&shared_.v[j][64 * c + column_], y);
          AddOuter(x, y, o_[c]);
        }
      }
      // All threads have read the piece of V and, after the last one, P.
      __syncthreads();
    }
  }

  __device__ static void Load4(const float* from, float (&to)[4]) {
    const float4 x = *reinterpret_cast<const float4*>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  }
  __device__ static void AddOuter(const float (&x)[4], const float (&y)[4],
                                  float (&sum)[4][4]) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[r][i] = fmaf(x[r], y[i], sum[r][i]);
    }
  }

  // Divides by l, which is the end of (E9), merges with what the rows have
  // before, and writes O and LSE, (E7), to memory.
  __device__ void Store(const Sequence& sequence, int64_t h, int64_t first_row,
                        int valid) {
    const DeviceProblem& p = *sequence.problem;
    const int64_t b = sequence.b;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float l = l_[r];
#pragma unroll
      for (int step = 1; step < 16; step *= 2) {
        l += __shfl_xor_sync(0xffffffff, l, step);
      }
      const int64_t row = first_row + row_ + r;
      if (row >= p.q_len) continue;
      const bool empty = l == 0.0f || row_ + r >= valid;
      const RowMerge merge =
          MergeBefore(sequence, h, row, m_[r], empty ? 0.0f : l);
      if (p.lse.data != nullptr && column_ == 0) {
        StoreLse(p, b, h, row, merge.lse);
      }
      if (p.o.data == nullptr) continue;
      float* o = OutputRow<float>(p, b, h, row);
#pragma unroll
      for (int c = 0; c < kAcross; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int d = 64 * c + column_ + i;
          if (d >= p.value_dim) continue;
          const float x = empty ? 0.0f : o_[c][r][i];
          if (merge.before != nullptr) {
            o[d] = fmaf(merge.weight_before, merge.before[d], merge.weight * x);
          } else {
            o[d] = empty ? 0.0f : x / l;
          }
        }
      }
    }
  }

  Float32Shared<Config>& shared_;
  const int row_, column_;  // the thread's first row and column
  float m_[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  float l_[4] = {};  // sums over this thread's columns
  float o_[kAcross][4][4] = {};
};

// The launch gives a block of threads to each tile, and Float32SharedBytes of
// shared memory to each block.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads)
    Float32Kernel(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  Float32<Config>(memory).Run(params, params.first_tile + blockIdx.x);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_FLOAT32_CUH_
