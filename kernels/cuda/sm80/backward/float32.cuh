#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_FLOAT32_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_FLOAT32_CUH_

// Backward for f32 inputs, on the ordinary f32 units: cut as backward.cuh, with
// 16 x 16 threads that have 4 x 4 of each product's every 64 x 64. All operands
// come through shared memory in pieces, so that every dim takes the same.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/sm80/backward/column_block.cuh"
#include "kernels/cuda/tile/dq_sum.cuh"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/score.cuh"

namespace attnd::cuda::sm80 {

template <int kDim_>
struct BackwardFloat32Config {
  static constexpr int kDim = kDim_;  // a multiple of 64
  static constexpr int kRows = 64, kCols = 64, kThreads = 256;
  static constexpr int kDimStep = 32;  // of sums over the dim, at a time
  static constexpr int kBlocksPerSm = kDim <= 64 ? 2 : 1;
  static constexpr DqLayout kDqLayout = DqLayout::kRows;
};

// Lines of 64 that are written across: padded, for fewer bank conflicts.
using PaddedLine = float[64 + 4];

// Rows of a tensor, of which the first `valid` may be read.
struct Float32Rows {
  const float* data;
  int64_t stride;
  int valid, dim;

  // 0 for what must not be read.
  __device__ float At(int row, int d) const {
    return row < valid && d < dim ? data[row * stride + d] : 0.0f;
  }
};

template <class Config>
struct BackwardFloat32Shared {
  union {
    struct {
      PaddedLine x[Config::kDimStep], y[Config::kDimStep];  // transposed
    };
    float z[64][64];
  };
  PaddedLine p[Config::kRows], ds[Config::kRows];
  float lse[Config::kRows], delta[Config::kRows];
  ushort2 seen[Config::kRows];
  TileDescription description;
  uint32_t tile;
  ColumnBlock block;
  Float32Rows k, v;
  HeadRows<float> all_q, all_d_o;
  Float32Rows q, d_o;  // of a visit
  RowScratch scratch;
  Turn turn;
};

template <class Config>
constexpr int BackwardFloat32SharedBytes() {
  return static_cast<int>(sizeof(BackwardFloat32Shared<Config>));
}

template <class Config>
class BackwardFloat32 {
 public:
  static constexpr int kDim = Config::kDim, kRows = Config::kRows,
                       kCols = Config::kCols, kThreads = Config::kThreads;
  static constexpr int kAcross = kDim / 64;
  using Square = float[4][4];

  __device__ explicit BackwardFloat32(std::byte* memory)
      : shared_(*reinterpret_cast<BackwardFloat32Shared<Config>*>(memory)),
        down_(threadIdx.x / 16 * 4),
        across_(threadIdx.x % 16 * 4) {}

  __device__ void Run(const LaunchParams& params) {
    const OpenTile tile = FindTile<kThreads>(
        params, TakeTile(params, shared_.tile), shared_.description);
    const auto& gradients =
        *At<DeviceGradients>(BlobOf(params), tile.gradients);
    if (threadIdx.x == 0) Describe(params, tile, gradients);
    __syncthreads();  // all have what was written
    if (!shared_.block.visited.empty()) Loop();
    const auto& out = At<DeviceSegmentGradients>(
        BlobOf(params), gradients.segments)[shared_.block.segment];
    const DeviceProblem& p = *tile.problem;
    Store(dk_, p.scale, out.dk, p.head_dim);
    Store(dv_, 1.0f, out.dv, p.value_dim);
  }

 private:
  // By one thread: what there is to do.
  __device__ void Describe(const LaunchParams& params, const OpenTile& tile,
                           const DeviceGradients& gradients) {
    const DeviceProblem& p = *tile.problem;
    const auto block = MakeColumnBlock<kRows, kCols>(params, tile);
    const DeviceSegment& s = tile.segments[block.segment];
    shared_.block = block;
    shared_.k = {ColumnRows<float>(s.k, block), s.k.token_stride, block.valid,
                 p.head_dim};
    shared_.v = {ColumnRows<float>(s.v, block), s.v.token_stride, block.valid,
                 p.value_dim};
    shared_.all_q = HeadRows<float>(p.q, block);
    shared_.all_d_o = HeadRows<float>(gradients.d_o, block);
    shared_.scratch = RowScratch(params, gradients, block);
    shared_.turn = {};
  }

  __device__ void Loop() {
    Visit visit = FirstVisit(shared_.block);
    do {
      // Nobody reads the last step's any more, since the barrier that its last
      // product ended with.
      LoadTerms(visit);
      __syncthreads();  // all have the rows
      Square score = {}, dp = {};
      MultiplyRows(shared_.q, shared_.k, score);
      MultiplyRows(shared_.d_o, shared_.v, dp);
      StoreScores(visit, score, dp);
      AddColumns(shared_.p, shared_.d_o, dv_);
      AddColumns(shared_.ds, shared_.q, dk_);
      if (shared_.scratch.dq != nullptr) AddToRows(visit, shared_.k);
    } while (Next(shared_.block, visit));
  }

  __device__ void LoadTerms(const Visit& visit) {
    const int64_t first = int64_t{visit.rows} * kRows;
    if (threadIdx.x == kRows) {
      const int valid = static_cast<int>(
          min(shared_.block.intervals.rows - first, int64_t{kRows}));
      const HeadRows<float>&q = shared_.all_q, &d_o = shared_.all_d_o;
      shared_.q = {q.Row(visit.head, first), q.token_stride, valid,
                   shared_.k.dim};
      shared_.d_o = {d_o.Row(visit.head, first), d_o.token_stride, valid,
                     shared_.v.dim};
    }
    if (threadIdx.x >= kRows) return;
    const RowScratch& scratch = shared_.scratch;
    const int64_t row = scratch.template RowOf<kRows>(visit) + threadIdx.x;
    shared_.lse[threadIdx.x] = scratch.lse[row];
    shared_.delta[threadIdx.x] = scratch.delta[row];
    shared_.seen[threadIdx.x] =
        Seen<kCols>(shared_.block, int64_t{visit.rows} * kRows + threadIdx.x);
  }

  // product += X Y^T, for 64 rows of each.
  __device__ void MultiplyRows(const Float32Rows& x, const Float32Rows& y,
                               Square& product) {
    constexpr int kStep = Config::kDimStep;
#pragma unroll 1
    for (int first = 0; first < x.dim; first += kStep) {
#pragma unroll 4
      for (int i = threadIdx.x; i < 64 * kStep; i += kThreads) {
        const int row = i / kStep, d = i % kStep;
        shared_.x[d][row] = x.At(row, first + d);
        shared_.y[d][row] = y.At(row, first + d);
      }
      __syncthreads();  // all have X and Y
#pragma unroll 4
      for (int d = 0; d < kStep; ++d) {
        float a[4], b[4];
        Load4(&shared_.x[d][down_], a);
        Load4(&shared_.y[d][across_], b);
        AddOuter(a, b, product);
      }
      __syncthreads();  // all have left X and Y
    }
  }

  // (E12), (E15), (E16): P and dX of the tile, to shared memory.
  __device__ void StoreScores(const Visit& visit, const Square& score,
                              const Square& dp) {
    const ColumnBlock& block = shared_.block;
    const DeviceProblem& problem = *block.sequence.problem;
    const ScoreRule rule = MakeScoreRule(
        problem, block.sequence.b, block.kv_head * problem.group + visit.head);
    const int64_t first_row = int64_t{visit.rows} * kRows;
    const int64_t bias_column =
        block.sequence.segment(block.segment).bias_column + block.first_column;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = down_ + r;
      const ushort2 seen = shared_.seen[row];
      const float lse = shared_.lse[row], delta = shared_.delta[row];
      float p[4], ds[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = across_ + i;
        p[i] = ds[i] = 0.0f;
        if (column >= seen.x && column < seen.y && lse != INFINITY) {
          const float s =
              rule.Natural(score[r][i], first_row + row, bias_column + column);
          p[i] = expf(AtMostLse(s, lse) - lse);
          ds[i] = p[i] * (dp[r][i] - delta) * rule.Slope(score[r][i]);
        }
      }
      Store4(p, &shared_.p[row][across_]);
      Store4(ds, &shared_.ds[row][across_]);
    }
  }

  // sums += S^T Y for a tile of scores and its rows of Y, (E13) and (E18).
  __device__ void AddColumns(const PaddedLine (&s)[kRows], const Float32Rows& y,
                             Square (&sums)[kAcross]) {
#pragma unroll
    for (int c = 0; c < kAcross; ++c) {
      if (64 * c >= y.dim) break;
      LoadZ(y, 64 * c);
      __syncthreads();  // all have Z, and the scores
#pragma unroll 4
      for (int row = 0; row < kRows; ++row) {
        float a[4], b[4];
        Load4(&s[row][down_], a);
        Load4(&shared_.z[row][across_], b);
        AddOuter(a, b, sums[c]);
      }
      __syncthreads();  // all have left Z
    }
  }

  // (E17): dS K, added to the sums of the rows' dQ in memory.
  __device__ void AddToRows(const Visit& visit, const Float32Rows& k) {
    const RowScratch& scratch = shared_.scratch;
    float* to = scratch.dq +
                (scratch.template RowOf<kRows>(visit) + down_) * kDim + across_;
    const float power = DqPower(shared_.block.sequence.problem->scale);
    WaitForNewTurn(visit);
#pragma unroll 1
    for (int first = 0; first < k.dim; first += 64) {
      LoadZ(k, first);
      __syncthreads();  // all have Z, and it is the block's turn
      Square dq = {};
#pragma unroll 4
      for (int column = 0; column < kCols; ++column) {
        float a[4], b[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) a[r] = shared_.ds[down_ + r][column];
        Load4(&shared_.z[column][across_], b);
        AddOuter(a, b, dq);
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          ptx::AtomicAdd(to + r * kDim + first + i, dq[r][i] * power);
        }
      }
      // What was added is there before the turn ends.
      if (scratch.turns != nullptr) __threadfence();
      __syncthreads();  // all have left Z and dS, and added
    }
    if (threadIdx.x == 0 && scratch.turns != nullptr) {
      EndTurn(shared_.turn.counter, shared_.turn.number);
    }
  }
  // Before a barrier, after which the block may add to the rows' dQ.
  __device__ void WaitForNewTurn(const Visit& visit) {
    if (threadIdx.x != 0 || shared_.scratch.turns == nullptr) return;
    shared_.turn = MakeTurn<kRows>(shared_.block, shared_.scratch, visit);
    WaitForTurn(shared_.turn.counter, shared_.turn.number);
  }

  // 64 rows, from column `first` on.
  __device__ void LoadZ(const Float32Rows& rows, int first) {
#pragma unroll 4
    for (int i = threadIdx.x; i < 64 * 64; i += kThreads) {
      shared_.z[i / 64][i % 64] = rows.At(i / 64, first + i % 64);
    }
  }

  __device__ static void Load4(const float* from, float (&to)[4]) {
    const float4 x = *reinterpret_cast<const float4*>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  }
  __device__ static void Store4(const float (&x)[4], float* to) {
    *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
  }
  __device__ static void AddOuter(const float (&x)[4], const float (&y)[4],
                                  Square& sum) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[r][i] = fmaf(x[r], y[i], sum[r][i]);
    }
  }

  // What the segment has beyond the sequence's length gets zeros.
  __device__ void Store(const Square (&sums)[kAcross], float factor,
                        const TensorView& view, int dim) const {
    if (view.data == nullptr) return;
    const ColumnBlock& block = shared_.block;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int column = down_ + r;
      if (column >= block.stored) continue;
      float* to = ColumnRows<float>(view, block) + column * view.token_stride;
#pragma unroll
      for (int c = 0; c < kAcross; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int d = 64 * c + across_ + i;
          if (d < dim)
            to[d] = column < block.valid ? sums[c][r][i] * factor : 0;
        }
      }
    }
  }

  BackwardFloat32Shared<Config>& shared_;
  const int down_, across_;  // the first of this thread's
  Square dk_[kAcross] = {}, dv_[kAcross] = {};
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    BackwardFloat32Kernel(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  BackwardFloat32<Config>(memory).Run(params);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_FLOAT32_CUH_
