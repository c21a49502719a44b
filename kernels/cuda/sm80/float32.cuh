#ifndef ATTND_KERNELS_CUDA_SM80_FLOAT32_CUH_
#define ATTND_KERNELS_CUDA_SM80_FLOAT32_CUH_

// Forward for f32 inputs: FlashAttention-2 on the ordinary f32 units, as one
// pass of TF32 would lose half of the digits. 16 x 16 threads; each has four
// rows and every sixteenth group of four columns of S, and likewise of O.

#include <cstdint>

#include "kernels/cuda/sm80/column_walk.cuh"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/epilogue.cuh"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/score.cuh"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda::sm80 {

template <int kDim_>
struct Float32Config {
  static constexpr int kDim = kDim_;  // a multiple of 64
  static constexpr int kRows = 64, kCols = 64, kThreads = 256;
  // Columns of Q and K, and rows of V, that are in shared memory at a time.
  static constexpr int kDimStep = 32, kColStep = 16;
};

template <class Config>
struct Float32Shared {
  static constexpr int kDim = Config::kDim;
  float q[kDim][Config::kRows];           // Q, transposed
  float p[Config::kCols][Config::kRows];  // P, transposed
  union {
    float k[Config::kDimStep][Config::kCols];  // of K, transposed
    float v[Config::kColStep][kDim];           // of V
  };
  TileDescription description;
  RowBlock block;
  SegmentView<float> view;
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
  static constexpr int kAcross = kDim / 64;  // groups of columns of O

  __device__ explicit Float32(std::byte* memory)
      : shared_(*reinterpret_cast<Float32Shared<Config>*>(memory)),
        row_(threadIdx.x / 16 * 4),
        column_(threadIdx.x % 16 * 4) {}

  // The tile `index` of the launch; tiles are as Prefill's.
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
    __syncthreads();  // all have the block and Q
    if (valid > 0) Loop(MakeScoreRule(p, b, h), p);
    Store(p, b, h, first_row, valid);
  }

 private:
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

  __device__ void Loop(const ScoreRule& rule, const DeviceProblem& p) {
    ColumnWalk<kCols> walk;
    int segment = -1;
    Interval seen[4];
    while (walk.Next(shared_.block, threadIdx.x == 0, shared_.view)) {
      __syncthreads();  // all have the view
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

  // s += Q K^T, for `left` rows of K; the others count as 0.
  __device__ void MultiplyQK(const float* k, int64_t stride, int left, int dim,
                             float (&s)[4][4]) {
    constexpr int kStep = Config::kDimStep;
    for (int first = 0; first < dim; first += kStep) {
      for (int i = threadIdx.x; i < kCols * kStep; i += kThreads) {
        const int j = i / kStep, d = i % kStep;
        shared_.k[d][j] =
            j < left && first + d < dim ? k[j * stride + first + d] : 0.0f;
      }
      __syncthreads();  // all have K
#pragma unroll 8
      for (int d = 0; d < kStep; ++d) {
        float x[4], y[4];
        Load4(&shared_.q[first + d][row_], x);
        Load4(&shared_.k[d][column_], y);
        AddOuter(x, y, s);
      }
      __syncthreads();  // all have left K
    }
  }

  // Scores become P, in shared memory; O so far is brought to the new maximum.
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

  // O += P V, for `left` rows of V; the others count as 0.
  __device__ void AddPV(const float* v, int64_t stride, int left, int dim) {
    constexpr int kStep = Config::kColStep;
    for (int first = 0; first < kCols; first += kStep) {
      for (int i = threadIdx.x; i < kStep * kDim; i += kThreads) {
        const int j = i / kDim, d = i % kDim;
        shared_.v[j][d] =
            first + j < left && d < dim ? v[(first + j) * stride + d] : 0.0f;
      }
      __syncthreads();  // all have V and P
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
      __syncthreads();  // all have left V and, at the end, P
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

  __device__ void Store(const DeviceProblem& p, int64_t b, int64_t h,
                        int64_t first_row, int valid) {
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
      if (p.lse.data != nullptr && column_ == 0) {
        StoreLse(p, b, h, row, empty ? -INFINITY : m_[r] + logf(l));
      }
      if (p.o.data == nullptr) continue;
      float* o = OutputRow<float>(p, b, h, row);
#pragma unroll
      for (int c = 0; c < kAcross; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int d = 64 * c + column_ + i;
          if (d < p.value_dim) o[d] = empty ? 0.0f : o_[c][r][i] / l;
        }
      }
    }
  }

  Float32Shared<Config>& shared_;
  const int row_, column_;  // the first of this thread's
  float m_[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  float l_[4] = {};  // this thread's part of the sum
  float o_[kAcross][4][4] = {};
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads)
    Float32Kernel(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  Float32<Config>(memory).Run(params, params.first_tile + blockIdx.x);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_FLOAT32_CUH_
