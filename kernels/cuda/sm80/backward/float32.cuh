#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_FLOAT32_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_FLOAT32_CUH_

// Backward for f32 inputs, on the ordinary f32 units. The work is cut as in
// backward.cuh. There are 16 x 16 threads: thread (y, x) has 4 x 4 elements of
// every 64 x 64 of a product, from row 4 y and column 4 x on. All operands come
// through shared memory in pieces, so that all dims take the same amount.

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
  static constexpr int kDimStep = 32;  // dims summed over at a time
  static constexpr int kBlocksPerSm = kDim <= 64 ? 2 : 1;
  static constexpr DqLayout kDqLayout = DqLayout::kRows;
};

// A line of 64 elements. Threads read or write the same element of many lines
// at once, so lines are padded for fewer bank conflicts.
using PaddedLine = float[64 + 4];

// Rows of a tensor, [valid, dim] with `stride` elements from row to row.
struct Float32Rows {
  const float* data;
  int64_t stride;
  int valid, dim;

  // The element, or 0 where there is none.
  __device__ float At(int row, int d) const {
    return row < valid && d < dim ? data[row * stride + d] : 0.0f;
  }
};

// A block's shared memory. All threads write and read the matrices; a barrier
// lies between each write and read.
template <class Config>
struct BackwardFloat32Shared {
  union {
    // Operands of MultiplyRows: pieces of X and Y, transposed.
    struct {
      PaddedLine x[Config::kDimStep], y[Config::kDimStep];
    };
    // The operand of AddColumns and AddToRows: 64 columns of Y or K.
    float z[64][64];
  };
  PaddedLine p[Config::kRows], ds[Config::kRows];  // P and dX, [kRows, kCols]
  // Of the visit's rows; row r's are written by thread r.
  float lse[Config::kRows], delta[Config::kRows];
  ushort2 seen[Config::kRows];  // columns [x, y) of the block that a row sees
  TileDescription description;
  // Thread 0 writes the rest once, but for q and d_o, which thread kRows writes
  // at every visit, and turn, which thread 0 alone writes and reads.
  uint32_t tile;
  ColumnBlock block;
  Float32Rows k, v;                // rows of the block's columns
  HeadRows<float> all_q, all_d_o;  // all q heads of the K/V head
  Float32Rows q, d_o;              // the visit's rows
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
  static constexpr int kAcross = kDim / 64;  // squares of 64 x 64 of dK and dV
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
    __syncthreads();  // thread 0 has written what all read
    if (!shared_.block.visited.empty()) Loop();
    const auto& out = At<DeviceSegmentGradients>(
        BlobOf(params), gradients.segments)[shared_.block.segment];
    const DeviceProblem& p = *tile.problem;
    Store(dk_, p.scale, out.dk, out.dk_before, p.head_dim);
    Store(dv_, 1.0f, out.dv, out.dv_before, p.value_dim);
  }

 private:
  // Writes to shared memory what there is to do. For one thread.
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
      // The last step's product ended with a barrier, so that nobody reads its
      // terms any more.
      LoadTerms(visit);
      __syncthreads();  // lse, delta, seen, q and d_o are written
      Square score = {}, dp = {};
      MultiplyRows(shared_.q, shared_.k, score);
      MultiplyRows(shared_.d_o, shared_.v, dp);
      StoreScores(visit, score, dp);
      AddColumns(shared_.p, shared_.d_o, dv_);
      AddColumns(shared_.ds, shared_.q, dk_);
      if (shared_.scratch.dq != nullptr) AddToRows(visit, shared_.k);
    } while (Next(shared_.block, visit));
  }

  // Writes to shared memory what is known of the visit's rows.
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
      __syncthreads();  // all threads have written the pieces of X and Y
#pragma unroll 4
      for (int d = 0; d < kStep; ++d) {
        float a[4], b[4];
        Load4(&shared_.x[d][down_], a);
        Load4(&shared_.y[d][across_], b);
        AddOuter(a, b, product);
      }
      __syncthreads();  // all threads have read them
    }
  }

  // (E12), (E15), (E16): writes P and dX of the tile to shared memory.
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

  // (E13), (E18): sums += S^T Y, where S is P or dX and Y is dO or Q.
  __device__ void AddColumns(const PaddedLine (&s)[kRows], const Float32Rows& y,
                             Square (&sums)[kAcross]) {
#pragma unroll
    for (int c = 0; c < kAcross; ++c) {
      if (64 * c >= y.dim) break;
      LoadZ(y, 64 * c);
      __syncthreads();  // all threads have written Z, and P and dX
#pragma unroll 4
      for (int row = 0; row < kRows; ++row) {
        float a[4], b[4];
        Load4(&s[row][down_], a);
        Load4(&shared_.z[row][across_], b);
        AddOuter(a, b, sums[c]);
      }
      __syncthreads();  // all threads have read Z
    }
  }

  // (E17): adds dX K to the sums of the rows' dQ in memory.
  __device__ void AddToRows(const Visit& visit, const Float32Rows& k) {
    const RowScratch& scratch = shared_.scratch;
    float* to = scratch.dq +
                (scratch.template RowOf<kRows>(visit) + down_) * kDim + across_;
    const float power = DqPower(shared_.block.sequence.problem->scale);
    WaitForNewTurn(visit);
#pragma unroll 1
    for (int first = 0; first < k.dim; first += 64) {
      LoadZ(k, first);
      // All threads have written Z, and thread 0 has seen the turn begin.
      __syncthreads();
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
      // Whoever has the next turn must see what this thread has added.
      if (scratch.turns != nullptr) __threadfence();
      __syncthreads();  // all threads have read Z and dX, and have added
    }
    if (threadIdx.x == 0 && scratch.turns != nullptr) {
      EndTurn(shared_.turn.counter, shared_.turn.number);
    }
  }
  // Thread 0 waits for the block's turn at the visit's rows, if there are
  // turns. A barrier must follow, after which all threads may add to these
  // rows' dQ.
  __device__ void WaitForNewTurn(const Visit& visit) {
    if (threadIdx.x != 0 || shared_.scratch.turns == nullptr) return;
    shared_.turn = MakeTurn<kRows>(shared_.block, shared_.scratch, visit);
    WaitForTurn(shared_.turn.counter, shared_.turn.number);
  }

  // Writes 64 columns of 64 rows, from column `first` on, to shared_.z.
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

  // Stores dK or dV, the sums times `factor`, if `view` has data. Columns of
  // the segment beyond the sequence's length get zeros.
  __device__ void Store(const Square (&sums)[kAcross], float factor,
                        const TensorView& view, const ConstTensorView& before,
                        int dim) const {
    if (view.data == nullptr) return;
    const ColumnBlock& block = shared_.block;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int column = down_ + r;
      if (column >= block.stored) continue;
      float* to = ColumnRows<float>(view, block) + column * view.token_stride;
      const float* from =
          before.data != nullptr
              ? ColumnRows<float>(before, block) + column * before.token_stride
              : nullptr;
#pragma unroll
      for (int c = 0; c < kAcross; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int d = 64 * c + across_ + i;
          if (d >= dim) continue;
          const float x = column < block.valid ? sums[c][r][i] * factor : 0;
          to[d] = from == nullptr ? x : from[d] + x;
        }
      }
    }
  }

  BackwardFloat32Shared<Config>& shared_;
  const int down_, across_;  // the thread's first row and column of a square
  Square dk_[kAcross] = {}, dv_[kAcross] = {};
};

// The launch gives a block of threads to each tile, and
// BackwardFloat32SharedBytes of shared memory to each block.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    BackwardFloat32Kernel(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  BackwardFloat32<Config>(memory).Run(params);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_FLOAT32_CUH_
