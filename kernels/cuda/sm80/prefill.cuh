#ifndef ATTND_KERNELS_CUDA_SM80_PREFILL_CUH_
#define ATTND_KERNELS_CUDA_SM80_PREFILL_CUH_

// Forward for 16-bit inputs and sequences of more than 16 queries, as in
// FlashAttention-2. A block of threads keeps a block of Q's rows and their O on
// chip while K and V come by in tiles. There is one buffer of each: while one
// is worked on, the other is being filled. Each warp has rows of its own and
// never waits for another's softmax.

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

// What a block of threads has in shared memory behind its tiles. Thread 0
// writes it, except where noted, and all threads read it.
template <class Config>
struct PrefillShared {
  using T = typename Config::T;
  TileDescription description;  // written by all threads, in FindTile
  RowBlock block;
  ScoreRule rule;
  bool plain;    // whether scores take the fast path now, see ScoreRule
  float factor;  // what softmax multiplies scores by, for units of log2
  int64_t head;  // q head
  int head_dim, value_dim;
  int valid;  // rows that the sequence has and this kernel computes
  int first_stored, end_stored;  // rows of the block that are written to memory
  SegmentView<T> views[2];       // the segment worked on, and the next
  // Columns [x, y) that each row sees of the segment worked on; written by all
  // threads, in SetRows.
  uint2 rows[Config::kRows];
  // Each row's largest score in natural units, if scores are not plain; read
  // and written by the row's warp alone, see Rebase.
  float tops[Config::kRows];
};

// Tiles of Q [kRows, kDim], K and V [kCols, kDim] each, then PrefillShared.
template <class Config>
constexpr int PrefillSharedBytes() {
  return TileLayout<Config::kDim>::Bytes(Config::kRows + 2 * Config::kCols) +
         static_cast<int>(sizeof(PrefillShared<Config>));
}

// Computes one block of rows of one q head of one sequence.
template <class Config>
class Prefill {
 public:
  using T = typename Config::T;
  static constexpr int kDim = Config::kDim, kRows = Config::kRows,
                       kCols = Config::kCols, kThreads = Config::kThreads;
  // A warp's part of S is [kTiles][kN] accumulators of mma, 16 x 8 each.
  static constexpr int kTiles = kRows / Config::kWarps / 16;
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

  // Computes the tile `index` of the launch.
  __device__ void Run(const LaunchParams& params, int64_t index) {
    const OpenTile tile =
        FindTile<Config::kThreads>(params, index, shared_.description);
    // Heads follow one another, so that K and V of the few at work stay in the
    // L2 cache. A head's last rows come first: under a causal mask they take
    // longest.
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
      // All warps have finished, and do all again if any of them must.
      const bool again = shared_.plain && MustScoreAgain(softmax);
      if (!__syncthreads_or(again)) break;
      SetPlain(false);
      __syncthreads();  // thread 0 has written it
    }
    if (!shared_.plain) softmax.TakeTops(Tops());
    float lse[kTiles][2];
    Finish(softmax, shared_.rule.natural_factor(shared_.plain), shared_.factor,
           shared_.valid - warp_row_, lane_, o, lse);
    if (shared_.block.sequence.problem->before != 0) Merge(o, lse);
    Store(o, lse);
  }

 private:
  // Whether scores have left f32's range, or may have, so that the tile must be
  // done again with scores in natural units.
  __device__ bool MustScoreAgain(const OnlineSoftmax<kTiles>& softmax) const {
    return softmax.Overflowed(shared_.factor) ||
           (kProductsOverflow<T> &&
            softmax.HasUnseen(shared_.valid - warp_row_, lane_));
  }

  // Writes to shared memory what there is to do, and starts copying Q. What is
  // needed after the loop stays there, as it would take registers in the loop.
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
      // Of a sequence that decode computes, decode writes the first kDecodeRows
      // rows; those beyond, which are padding, are written here.
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
    __syncthreads();  // thread 0 has written what all read
  }

  // Sets how scores are made from now on; thread 0 does it, and a barrier must
  // follow.
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

  // Visits all tiles of columns: o and softmax become the rows' a, m and l.
  __device__ void Loop(float (&o)[kTiles][kDim / 8][4],
                       OnlineSoftmax<kTiles>& softmax) {
    const RowBlock& block = shared_.block;
    const bool leader = threadIdx.x == 0;
    ColumnWalk<kCols> walk;  // moves on while its tile is worked on
    int view = 0;  // which of shared_.views has the segment of that tile
    bool more = walk.Next(block, leader, shared_.views[0]);
    if (!more) {
      // Store is about to overwrite Q's memory.
      ptx::CpAsyncWait<0>();
      __syncthreads();  // all threads' copies of Q have ended
      return;
    }
    __syncthreads();  // thread 0 has written the view
    LoadK(shared_.views[0], walk.column());
    ptx::CpAsyncCommit();
    SetRows(walk.segment());
    while (more) {
      const SegmentView<T>& here = shared_.views[view];
      const uint32_t column = walk.column();
      const int segment = walk.segment();
      ptx::CpAsyncWait<0>();
      // All threads' copies of K, and of Q at first, have arrived; shared_.rows
      // is written; and all warps have multiplied by the V before.
      __syncthreads();
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
      // All threads' copies of V have arrived; thread 0 has written the next
      // view; and all warps have multiplied by K and read shared_.rows.
      __syncthreads();
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
  // Tokens of the tile at `column` that the sequence has.
  __device__ static int Left(const SegmentView<T>& s, int64_t column) {
    return static_cast<int>(min(s.len - column, int64_t{kCols}));
  }

  // Writes to shared_.rows what each row sees of a segment. A barrier must come
  // before it is read.
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

  // Where the largest scores of this lane's rows are, 8 floats apart.
  __device__ float* Tops() const {
    return &shared_.tops[warp_row_ + lane_ / 4];
  }
  // Loop's barriers, or Run's, come before anyone reads them.
  __device__ void ClearTops() const {
    for (int i = threadIdx.x; i < kRows; i += kThreads)
      shared_.tops[i] = -INFINITY;
  }

  // Columns [x, y) of the tile at `column` that the warp's row `row` sees,
  // counted from the tile's first.
  __device__ int2 Seen(int row, int64_t column) const {
    const uint2 seen = shared_.rows[warp_row_ + row];
    const int64_t lo = seen.x - column, hi = seen.y - column;
    return make_int2(
        static_cast<int>(min(max(lo, int64_t{0}), int64_t{kCols})),
        static_cast<int>(min(max(hi, int64_t{0}), int64_t{kCols})));
  }

  // Makes -inf what the rows do not see of the tile at `column`, (E21).
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

  // (E1) and (E2) by shared_.rule, masked, and relative to the rows' largest
  // scores. As this is rare it goes score by score and by way of local memory,
  // to take no registers from the usual path. `bias_first` is the bias's column
  // at which the segment begins.
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

  // Merges O and LSE of the warp's rows that are stored with what they have
  // before.
  __device__ void Merge(float (&o)[kTiles][kDim / 8][4],
                        float (&lse)[kTiles][2]) const {
    const Sequence& sequence = shared_.block.sequence;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int i = warp_row_ + 16 * t + lane_ / 4 + 8 * r;
        if (i < shared_.first_stored || i >= shared_.end_stored) continue;
        const RowMerge merge = MergeBefore(
            sequence, shared_.head, shared_.block.first_row + i, lse[t][r]);
        lse[t][r] = merge.lse;
        AddWeighted(merge, r, shared_.value_dim, lane_, o[t]);
      }
    }
  }

  // Writes O and LSE of the warp's rows to memory.
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
      // Only this warp reads its rows of Q, and it has read them, so that their
      // memory serves as staging without a barrier of the block.
      StoreRows<T, kDim>(o, q_ + warp_row_ * Layout::kRowBytes, to,
                         p.o.token_stride, first, end, p.value_dim, lane_);
    } else {
      StoreElements(o, to, p.o.token_stride, first, end, p.value_dim, lane_);
    }
  }

  const uint32_t q_, k_, v_;  // addresses of the tiles in shared memory
  PrefillShared<Config>& shared_;
  const int lane_, warp_row_;  // warp_row_: the warp's first row in the block
};

// The launch gives a block of threads to each tile, and PrefillSharedBytes of
// shared memory to each block.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    PrefillKernel(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  Prefill<Config>(memory).Run(params, params.first_tile + blockIdx.x);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_PREFILL_CUH_
