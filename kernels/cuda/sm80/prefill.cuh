#ifndef ATTND_KERNELS_CUDA_SM80_PREFILL_CUH_
#define ATTND_KERNELS_CUDA_SM80_PREFILL_CUH_

// Forward for sequences of many queries, 16-bit inputs: FlashAttention-2. A
// block of threads keeps a block of Q's rows and their O on chip while K and V
// come by in tiles, one buffer of each: while one is worked on, the other is on
// its way. Each warp has rows of its own and never waits for another's softmax.

#include <cstdint>

#include "kernels/cuda/sm80/column_walk.cuh"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/epilogue.cuh"
#include "kernels/cuda/sm80/products.cuh"
#include "kernels/cuda/sm80/softmax.cuh"
#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/score.cuh"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda::sm80 {

template <class Config>
struct PrefillShared {
  using T = typename Config::T;
  TileDescription description;
  RowBlock block;
  ScoreRule rule;
  bool plain;    // see ScoreRule
  float factor;  // of softmax
  int64_t head;
  int head_dim, value_dim;
  int valid;                     // rows that may see something
  int first_stored, end_stored;  // rows to be written
  SegmentView<T> views[2];       // the segment worked on, and the next
  uint2 rows[Config::kRows];     // the columns of that segment which a row sees
  float tops[Config::kRows];     // of rows that are not plain, see Rebase
};

template <class Config>
constexpr int PrefillSharedBytes() {
  return TileLayout<Config::kDim>::Bytes(Config::kRows + 2 * Config::kCols) +
         static_cast<int>(sizeof(PrefillShared<Config>));
}

// One block of rows of one q head of one sequence.
template <class Config>
class Prefill {
 public:
  using T = typename Config::T;
  static constexpr int kDim = Config::kDim, kRows = Config::kRows,
                       kCols = Config::kCols, kThreads = Config::kThreads;
  static constexpr int kTiles = kRows / Config::kWarps / 16;  // of a warp
  static constexpr int kN = kCols / 8;
  using Layout = TileLayout<kDim>;

  __device__ explicit Prefill(std::byte* memory)
      : q_(ptx::SharedAddress(memory)),
        k_(q_ + Layout::Bytes(kRows)),
        v_(k_ + Layout::Bytes(kCols)),
        shared_(*reinterpret_cast<PrefillShared<Config>*>(
            memory + Layout::Bytes(kRows + 2 * kCols))),
        lane_(threadIdx.x % 32),
        warp_row_(threadIdx.x / 32 * 16 * kTiles) {}

  // The tile `index` of the launch.
  __device__ void Run(const LaunchParams& params, int64_t index) {
    const OpenTile tile =
        FindTile<Config::kThreads>(params, index, shared_.description);
    // Heads one after another, as K and V of a few stay in the cache; and a
    // head's last rows first, which see the most when the mask is causal.
    const Quotient rows = Divide(tile.index, tile.row_blocks);
    const Quotient head =
        Divide(rows.quotient, static_cast<uint32_t>(tile.problem->q_heads));
    Begin(tile.sequence(BlobOf(params), head.quotient), head.remainder,
          (tile.row_blocks - 1 - rows.remainder) * kRows);
    float o[kTiles][kDim / 8][4];
    OnlineSoftmax<kTiles> softmax;
    while (true) {
      softmax = {};
      Clear(o);
      if (!shared_.plain) ClearTops();
      if (shared_.valid > 0) Loop(o, softmax);
      const bool again = shared_.plain && MustScoreAgain(softmax);
      if (!__syncthreads_or(again)) break;
      SetPlain(false);
      __syncthreads();  // all have it
    }
    if (!shared_.plain) softmax.TakeTops(Tops());
    float lse[kTiles][2];
    Finish(softmax, shared_.rule.natural_factor(shared_.plain), shared_.factor,
           shared_.valid - warp_row_, lane_, o, lse);
    Store(o, lse);
  }

 private:
  // Whether scores have left f32's range, or may have.
  __device__ bool MustScoreAgain(const OnlineSoftmax<kTiles>& softmax) const {
    return softmax.Overflowed(shared_.factor) ||
           (kProductsOverflow<T> &&
            softmax.HasUnseen(shared_.valid - warp_row_, lane_));
  }

  // Says what there is to do, and starts loading Q. Everything that is needed
  // after the loop stays in shared memory.
  __device__ void Begin(const Sequence& sequence, int64_t h,
                        int64_t first_row) {
    const DeviceProblem& p = *sequence.problem;
    const bool ours = !IsDecode(sequence.q_len);
    const auto within = [&](int64_t row) {
      return static_cast<int>(
          min(max(row - first_row, int64_t{0}), int64_t{kRows}));
    };
    const int valid = ours ? within(sequence.q_len) : 0;
    if (threadIdx.x == 0) {
      shared_.block = {
          sequence,  Divide(h, static_cast<uint32_t>(p.group)).quotient,
          first_row, first_row + valid - 1,
          0,         sequence.kv_len};
      shared_.rule = MakeScoreRule(p, sequence.b, h);
      SetPlain(shared_.rule.plain());
      shared_.head = h;
      shared_.head_dim = p.head_dim;
      shared_.value_dim = p.value_dim;
      shared_.valid = valid;
      // What decode has done is left alone, but not what pads it.
      shared_.first_stored = ours ? 0 : within(kDecodeRows);
      shared_.end_stored = within(p.q_len);
    }
    if (valid > 0) {
      const T* q = static_cast<const T*>(p.q.data) +
                   sequence.b * p.q.batch_stride + h * p.q.head_stride +
                   first_row * p.q.token_stride;
      LoadTile<kDim, kRows, kThreads>(q_, q, p.q.token_stride, valid,
                                      p.head_dim, threadIdx.x);
      ptx::CpAsyncCommit();
    }
    __syncthreads();  // all have what was written
  }

  // By one thread, how scores are made from now on. What is read in the loop is
  // in shared memory, not in registers.
  __device__ void SetPlain(bool plain) {
    if (threadIdx.x != 0) return;
    shared_.plain = plain;
    shared_.factor = shared_.rule.factor(plain);
  }

  __device__ static void Clear(float (&o)[kTiles][kDim / 8][4]) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[t][d][i] = 0.0f;
      }
    }
  }

  __device__ void Loop(float (&o)[kTiles][kDim / 8][4],
                       OnlineSoftmax<kTiles>& softmax) {
    const RowBlock& block = shared_.block;
    const bool leader = threadIdx.x == 0;
    ColumnWalk<kCols> walk;  // a tile ahead
    int view = 0;            // of the tile that is worked on
    bool more = walk.Next(block, leader, shared_.views[0]);
    if (!more) {
      // Q's memory is about to be used again.
      ptx::CpAsyncWait<0>();
      __syncthreads();
      return;
    }
    __syncthreads();  // all have the view
    LoadK(shared_.views[0], walk.column());
    ptx::CpAsyncCommit();
    SetRows(walk.segment());
    while (more) {
      const SegmentView<T>& here = shared_.views[view];
      const uint32_t column = walk.column();
      const int segment = walk.segment();
      ptx::CpAsyncWait<0>();
      __syncthreads();  // all have K and the rows, and left V
      LoadV(here, column);
      ptx::CpAsyncCommit();
      more = walk.Next(block, leader, shared_.views[view ^ 1]);
      const bool entered = more && walk.segment() != segment;

      float s[kTiles][kN][4];
      MultiplyQK<T, kDim>(q_, warp_row_, k_, lane_, s);
      if (!shared_.plain) {
        Score(here.bias_column, column, s, o, softmax);
      } else if (column < here.all.lo || column + kCols > here.all.hi) {
        Mask(column, s);
      }

      ptx::CpAsyncWait<0>();
      __syncthreads();  // all have V and the next view, and left K and the rows
      if (entered) {
        view ^= 1;
        SetRows(walk.segment());
      }
      if (more) LoadK(shared_.views[view], walk.column());
      ptx::CpAsyncCommit();

      softmax.Update(s, o, shared_.factor);
      AddPV<T, kDim>(s, v_, lane_, o);
    }
  }

  __device__ void LoadK(const SegmentView<T>& s, int64_t column) {
    LoadTile<kDim, kCols, kThreads>(k_, s.k + column * s.k_stride, s.k_stride,
                                    Left(s, column), shared_.head_dim,
                                    threadIdx.x);
  }
  __device__ void LoadV(const SegmentView<T>& s, int64_t column) {
    LoadTile<kDim, kCols, kThreads>(v_, s.v + column * s.v_stride, s.v_stride,
                                    Left(s, column), shared_.value_dim,
                                    threadIdx.x);
  }
  __device__ static int Left(const SegmentView<T>& s, int64_t column) {
    return static_cast<int>(min(s.len - column, int64_t{kCols}));
  }

  // Fills shared_.rows for a segment: what the rows see of it.
  __device__ void SetRows(int segment) {
    const RowBlock& block = shared_.block;
    const RowIntervals intervals = block.sequence.Intervals(segment);
    for (int i = threadIdx.x; i < kRows; i += kThreads) {
      const int64_t row = block.first_row + i;
      Interval seen;
      if (row <= block.last_row) seen = intervals.Row(row);
      shared_.rows[i] = make_uint2(static_cast<uint32_t>(seen.lo),
                                   static_cast<uint32_t>(seen.hi));
    }
  }

  // Where this lane's rows have their largest scores; a barrier comes before
  // they are read.
  __device__ float* Tops() const {
    return &shared_.tops[warp_row_ + lane_ / 4];
  }
  __device__ void ClearTops() const {
    for (int i = threadIdx.x; i < kRows; i += kThreads)
      shared_.tops[i] = -INFINITY;
  }

  // Columns of the tile at `column` that this lane's row sees, relative to it.
  __device__ int2 Seen(int row, int64_t column) const {
    const uint2 seen = shared_.rows[warp_row_ + row];
    const int64_t lo = seen.x - column, hi = seen.y - column;
    return make_int2(
        static_cast<int>(min(max(lo, int64_t{0}), int64_t{kCols})),
        static_cast<int>(min(max(hi, int64_t{0}), int64_t{kCols})));
  }

  __device__ void Mask(int64_t column, float (&s)[kTiles][kN][4]) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int2 seen = Seen(16 * t + lane_ / 4 + 8 * r, column);
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int j = 8 * n + 2 * (lane_ % 4) + i;
            if (j < seen.x || j >= seen.y) s[t][n][2 * r + i] = -INFINITY;
          }
        }
      }
    }
  }

  // Scores by the rule, masked and relative to their rows' largest: rarely, so
  // one by one, by way of local memory, to take no registers from what is done
  // always.
  __device__ void Score(int64_t bias_first, int64_t column,
                        float (&s)[kTiles][kN][4],
                        float (&o)[kTiles][kDim / 8][4],
                        OnlineSoftmax<kTiles>& softmax) const {
    float scores[kTiles * kN * 4];
    Copy(&s[0][0][0], scores);
    const ScoreRule rule = shared_.rule;
    const int64_t bias_column = bias_first + column;
#pragma unroll 1
    for (int e = 0; e < kTiles * kN * 4; ++e) {
      const int row = 16 * (e / (kN * 4)) + lane_ / 4 + 8 * (e % 4 / 2);
      const int j = 8 * (e / 4 % kN) + 2 * (lane_ % 4) + e % 2;
      const int2 seen = Seen(row, column);
      scores[e] = j < seen.x || j >= seen.y
                      ? -INFINITY
                      : rule.Natural(scores[e],
                                     shared_.block.first_row + warp_row_ + row,
                                     bias_column + j);
    }
    float shrink[2 * kTiles];
    Rebase<kTiles, kN>(scores, Tops(), lane_, shrink);
    softmax.Shrink(shrink, o);
    Copy(scores, &s[0][0][0]);
  }
  __device__ static void Copy(const float* from, float* to) {
#pragma unroll
    for (int e = 0; e < kTiles * kN * 4; ++e) to[e] = from[e];
  }

  __device__ void Store(const float (&o)[kTiles][kDim / 8][4],
                        const float (&lse)[kTiles][2]) {
    const DeviceProblem& p = *shared_.block.sequence.problem;
    const int64_t b = shared_.block.sequence.b, h = shared_.head;
    const int64_t row = shared_.block.first_row + warp_row_;
    const int first = shared_.first_stored - warp_row_;
    const int end = shared_.end_stored - warp_row_;
    if (p.lse.data != nullptr && lane_ % 4 == 0) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int i = 16 * t + lane_ / 4 + 8 * r;
          if (i >= first && i < end) StoreLse(p, b, h, row + i, lse[t][r]);
        }
      }
    }
    if (p.o.data == nullptr) return;
    if (p.o.dtype == DType::kF32) {
      StoreElements(o, OutputRow<float>(p, b, h, row), p.o.token_stride, first,
                    end, p.value_dim, lane_);
      return;
    }
    T* to = OutputRow<T>(p, b, h, row);
    if (IsAligned(to, p.o.token_stride) && p.value_dim % 8 == 0) {
      // Nobody else reads the warp's rows of Q.
      StoreRows<T, kDim>(o, q_ + warp_row_ * Layout::kRowBytes, to,
                         p.o.token_stride, first, end, p.value_dim, lane_);
    } else {
      StoreElements(o, to, p.o.token_stride, first, end, p.value_dim, lane_);
    }
  }

  const uint32_t q_, k_, v_;  // tiles
  PrefillShared<Config>& shared_;
  const int lane_, warp_row_;
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    PrefillKernel(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  Prefill<Config>(memory).Run(params, params.first_tile + blockIdx.x);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_PREFILL_CUH_
