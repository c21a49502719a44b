#ifndef ATTND_KERNELS_CUDA_SM80_DECODE_CUH_
#define ATTND_KERNELS_CUDA_SM80_DECODE_CUH_

// Forward for sequences of few queries, 16-bit inputs: bound by reading K and
// V. A block of threads has 16 rows, queries of all the heads that share a K/V
// head, and one part of the columns. Each warp streams tiles of columns of its
// own through a ring of buffers, and waits for nobody. Their states are merged
// at the end, and those of the parts by whichever block is the last to be done,
// always in the same order.

#include <cstdint>

#include "kernels/cuda/sm80/column_walk.cuh"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/decode_tile.cuh"
#include "kernels/cuda/sm80/partials.cuh"
#include "kernels/cuda/sm80/products.cuh"
#include "kernels/cuda/sm80/query.cuh"
#include "kernels/cuda/sm80/read_ahead.cuh"
#include "kernels/cuda/sm80/softmax.cuh"
#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/score.cuh"
#include "kernels/cuda/tile/sequence.h"
#include "kernels/cuda/tile/stagger.cuh"

namespace attnd::cuda::sm80 {

// The segments that a warp has come to, and its rows' largest scores.
template <class T>
struct WarpViews {
  SegmentView<T> loading, computing;
  float tops[kDecodeTile];  // of rows that are not plain, see Rebase
};

template <class Config>
struct DecodeShared {
  TileDescription description;
  DecodeTile tile;
  ScoreRule rule;  // but for the bias, which differs from head to head
  OutputPlace outputs[kDecodeTile];
  WarpViews<typename Config::T> views[Config::kWarps];
  WarpStates<Config::kWarps> states;
};

template <class Config>
constexpr int DecodeSharedBytes() {
  return Config::kWarps * Config::kStages * 2 *
             TileLayout<Config::kDim>::Bytes(Config::kCols) +
         static_cast<int>(sizeof(DecodeShared<Config>));
}

// A warp's part of it.
template <class Config>
class DecodeWarp {
 public:
  using T = typename Config::T;
  static constexpr int kDim = Config::kDim, kCols = Config::kCols,
                       kStages = Config::kStages;
  static constexpr int kN = kCols / 8, kDimTiles = kDim / 8;
  static constexpr int kTileBytes = TileLayout<kDim>::Bytes(kCols);

  // `ring` is the warp's own.
  __device__ DecodeWarp(uint32_t ring, DecodeShared<Config>& shared, int warp,
                        int lane)
      : ring_(ring),
        tile_(shared.tile),
        rule_(shared.rule),
        views_(shared.views[warp]),
        lane_(lane),
        loading_(warp),
        computing_(warp) {}

  // `ahead` are tiles whose copies have begun.
  __device__ void Run(bool plain, const uint32_t (&q)[kDim / 16][4],
                      TilesAhead ahead, OnlineSoftmax<1>& softmax,
                      float (&o)[1][kDimTiles][4]) {
    const DeviceProblem& p = *tile_.block.sequence.problem;
    const int head_dim = p.head_dim, value_dim = p.value_dim;
    const float factor = rule_.factor(plain);
#pragma unroll 1
    for (int slot = 0; slot < kStages; ++slot) {
      if (!Advance()) {
        ptx::CpAsyncCommit();
      } else if (slot >= ahead.count || !IsThere(ahead)) {
        Load(head_dim, value_dim, slot);
      }
      ahead.column += kCols * Config::kWarps;
    }
    if (!plain && lane_ < kDecodeTile) views_.tops[lane_] = -INFINITY;
    int slot = 0;
#pragma unroll 1
    while (ToNext()) {
      ptx::CpAsyncWait<kStages - 1>();
      __syncwarp();  // all lanes have the tile
      float s[1][kN][4];
      const uint32_t k = ring_ + 2 * slot * kTileBytes;
      MultiplyLoadedQK(q, k, s);
      const uint32_t column = computing_.column();
      if (!plain) {
        Score(column, s);
        // By way of local memory, as in prefill.cuh.
        float scores[4 * kN], shrink[2];
#pragma unroll
        for (int e = 0; e < 4 * kN; ++e) scores[e] = s[0][e / 4][e % 4];
        Rebase<1, kN>(scores, Tops(), lane_, shrink);
#pragma unroll
        for (int e = 0; e < 4 * kN; ++e) s[0][e / 4][e % 4] = scores[e];
        softmax.Shrink(shrink, o);
      } else if (column < all_.x || column + kCols > all_.y) {
        Mask(column, s);
      }
      softmax.Update(s, o, factor);
      AddPV<T, kDim>(s, k + kTileBytes, lane_, o);
      __syncwarp();  // all lanes have left the tile
      if (Advance()) {
        Load(head_dim, value_dim, slot);
      } else {
        ptx::CpAsyncCommit();
      }
      slot = slot + 1 == kStages ? 0 : slot + 1;
    }
    ptx::CpAsyncWait<0>();
    __syncwarp();
    if (!plain) softmax.TakeTops(Tops());
  }

 private:
  // Where the tiles come from that are loaded.
  struct Source {
    const T* k;
    const T* v;
    int64_t k_stride, v_stride, len;
  };

  // Moves on to the warp's next tile, to be loaded; false if there is none.
  __device__ bool Advance() {
    const int segment = loading_.segment();
    SegmentView<T>& view = views_.loading;
    if (more_) more_ = loading_.Next(tile_.block, lane_ == 0, view);
    if (more_ && loading_.segment() != segment) {
      __syncwarp();  // all lanes have the view
      source_ = {view.k, view.v, view.k_stride, view.v_stride, view.len};
      __syncwarp();  // all lanes have left it
    }
    return more_;
  }
  // Whether that tile is the one on its way to where it belongs. If it is not,
  // nothing is on its way any more.
  __device__ bool IsThere(TilesAhead& ahead) const {
    if (loading_.column() == ahead.column) return true;
    ahead.count = 0;
    ptx::CpAsyncWait<0>();
    __syncwarp();  // all lanes' copies are over
    return false;
  }
  // Starts loading it into a slot of the ring.
  __device__ void Load(int head_dim, int value_dim, int slot) {
    const int64_t column = loading_.column();
    const int valid =
        static_cast<int>(min(source_.len - column, int64_t{kCols}));
    const uint32_t k = ring_ + 2 * slot * kTileBytes;
    LoadTile<kDim, kCols, 32, Reads::kOnce>(
        k, source_.k + column * source_.k_stride, source_.k_stride, valid,
        head_dim, lane_);
    LoadTile<kDim, kCols, 32, Reads::kOnce>(
        k + kTileBytes, source_.v + column * source_.v_stride, source_.v_stride,
        valid, value_dim, lane_);
    ptx::CpAsyncCommit();
  }

  // Moves on to the warp's next tile, to be worked on.
  __device__ bool ToNext() {
    if (computing_.Step()) return true;
    const SegmentView<T>* view = &views_.loading;
    if (more_ && loading_.segment() == computing_.segment() + 1) {
      computing_.Follow(*view);
    } else {
      view = &views_.computing;
      if (!computing_.Enter(tile_.block, lane_ == 0, views_.computing)) {
        return false;
      }
      __syncwarp();  // all lanes have the view
    }
    all_ = Unsigned(view->all);
    const bool alike = view->all.lo <= view->looked_at.lo &&
                       view->all.hi >= view->looked_at.hi;
    for (int r = 0; r < 2; ++r) {
      const int row = lane_ / 4 + 8 * r;
      Interval seen = view->looked_at;
      if (!alike && row < tile_.valid) {
        seen = Both(seen, tile_.block.sequence.Intervals(computing_.segment())
                              .Row(tile_.Row(row)));
      }
      seen_[r] = Unsigned(row < tile_.valid ? seen : Interval{});
    }
    __syncwarp();  // all lanes have left it
    return true;
  }
  __device__ static uint2 Unsigned(Interval columns) {
    return make_uint2(static_cast<uint32_t>(columns.empty() ? 0 : columns.lo),
                      static_cast<uint32_t>(columns.empty() ? 0 : columns.hi));
  }

  // As MultiplyQK, with Q in registers.
  __device__ void MultiplyLoadedQK(const uint32_t (&q)[kDim / 16][4],
                                   uint32_t k, float (&s)[1][kN][4]) const {
    using Layout = TileLayout<kDim>;
    k += Layout::Offset((lane_ & 7) + ((lane_ >> 4) << 3), (lane_ >> 3) & 1);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[0][n][i] = s[0][n + 1][i] = 0.0f;
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t b[4];
        ptx::Ldmatrix(b, Layout::Step(k, 2 * d) + Layout::Bytes(8 * n));
        ptx::Mma<T>(s[0][n], q[d], b[0], b[1]);
        ptx::Mma<T>(s[0][n + 1], q[d], b[2], b[3]);
      }
    }
  }

  // Where the lane's rows have their largest scores.
  __device__ float* Tops() const { return &views_.tops[lane_ / 4]; }

  // Whether the lane's row r (0 or 1) sees a column.
  __device__ bool Sees(int r, uint32_t column) const {
    return column >= seen_[r].x && column < seen_[r].y;
  }

  __device__ void Mask(uint32_t column, float (&s)[1][kN][4]) const {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t j = column + 8 * n + 2 * (lane_ % 4) + i % 2;
        if (!Sees(i / 2, j)) s[0][n][i] = -INFINITY;
      }
    }
  }

  __device__ void Score(uint32_t column, float (&s)[1][kN][4]) const {
    const Sequence& sequence = tile_.block.sequence;
    const int64_t bias_column =
        sequence.segment(computing_.segment()).bias_column;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(lane_ / 4 + 8 * r, tile_.valid - 1);
      const ScoreRule rule =
          MakeScoreRule(*sequence.problem, sequence.b, tile_.Head(row));
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          const uint32_t j = column + 8 * n + 2 * (lane_ % 4) + i % 2;
          s[0][n][i] = Sees(r, j) ? rule.Natural(s[0][n][i], tile_.Row(row),
                                                 bias_column + j)
                                  : -INFINITY;
        }
      }
    }
  }

  const uint32_t ring_;
  const DecodeTile& tile_;
  const ScoreRule& rule_;
  WarpViews<T>& views_;
  const int lane_;
  ColumnWalk<kCols, Config::kWarps, true> loading_, computing_;
  bool more_ = true;
  Source source_{};
  uint2 all_{};      // the columns of the segment that need no compare
  uint2 seen_[2]{};  // and those that the lane's two rows see
};

// Finds out what the block's tile is, and begins to read for it meanwhile. The
// tile and what goes with it are in shared memory for all threads after it, but
// for `outputs`, which are there after another barrier. Q is in registers, the
// tiles that were begun on their way to the warp's ring.
template <class Config>
__device__ TilesAhead OpenDecodeTile(const LaunchParams& params,
                                     DecodeShared<Config>& shared,
                                     uint32_t ring, int warp, int lane,
                                     uint32_t (&q)[Config::kDim / 16][4]) {
  TileFinder<Config::kThreads> finder(params, params.first_tile + blockIdx.x);
  TilesAhead ahead;
  const bool reads_ahead = params.ahead.columns > 0;
  if (reads_ahead) ahead = LoadAhead<Config>(params, ring, warp, lane, q);
  Stagger();
  const OpenTile open = finder.Open(shared.description);
  DecodeTile& tile = shared.tile;
  if (threadIdx.x == 0) {
    tile = MakeDecodeTile(BlobOf(params), open);
    shared.rule = MakeScoreRule(*open.problem, tile.block.sequence.b, 0);
  }
  __syncthreads();  // all have the tile
  if (!reads_ahead && tile.valid > 0) {
    LoadQ<Config::kDim, false>(tile.template Rows<typename Config::T>(),
                               tile.valid, open.problem->head_dim, lane, q);
  }
  if (threadIdx.x < tile.stored) {
    shared.outputs[threadIdx.x] = tile.Output(threadIdx.x);
  }
  return ahead;
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    DecodeKernel(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  constexpr int kRingBytes =
      Config::kStages * 2 * TileLayout<Config::kDim>::Bytes(Config::kCols);
  auto& shared = *reinterpret_cast<DecodeShared<Config>*>(
      memory + Config::kWarps * kRingBytes);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  std::byte* ring = memory + warp * kRingBytes;
  uint32_t q[Config::kDim / 16][4];
  TilesAhead ahead = OpenDecodeTile<Config>(
      params, shared, ptx::SharedAddress(ring), warp, lane, q);
  const DecodeTile& tile = shared.tile;
  if (tile.stored == 0) return;  // of which nothing is read ahead
  OnlineSoftmax<1> softmax;
  float o[1][Config::kDim / 8][4];
  bool plain = shared.rule.plain();
  while (true) {
    softmax = {};
#pragma unroll
    for (auto& x : o[0]) x[0] = x[1] = x[2] = x[3] = 0.0f;
    if (tile.valid > 0) {
      DecodeWarp<Config>(ptx::SharedAddress(ring), shared, warp, lane)
          .Run(plain, q, ahead, softmax, o);
      ahead.count = 0;
    }
    // Scores that have left f32's range, or may have, are found again.
    const bool again = softmax.Overflowed(shared.rule.factor(plain)) ||
                       (kProductsOverflow<typename Config::T> &&
                        softmax.HasUnseen(tile.valid, lane));
    if (!plain || !again) break;
    plain = false;
  }
  Stagger();
  const Partials<Config::kDim> partials(params, tile);
  const uint32_t counted = tile.parts > 1 ? partials.Counted() : 0;
  PutWarpState<Config::kDim>(
      softmax, shared.rule.natural_factor(plain), shared.rule.factor(plain), o,
      tile.stored, warp, lane, reinterpret_cast<float*>(ring), shared.states);
  if (lane == 0) {
    const bool alone = counted == tile.parts - 1;
    if (alone && tile.parts > 1) ptx::FenceAcquire();
    shared.states.alone[warp] = alone;
  }
  __syncthreads();  // all states are there
  MergeAndStore<Config>(tile, shared.outputs, memory, kRingBytes, partials,
                        shared.states);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_DECODE_CUH_
