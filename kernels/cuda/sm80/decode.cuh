#ifndef ATTND_KERNELS_CUDA_SM80_DECODE_CUH_
#define ATTND_KERNELS_CUDA_SM80_DECODE_CUH_

// Forward for 16-bit inputs and sequences of up to 16 queries, whose time is
// that of reading K and V. A block of threads has 16 rows, queries of all q
// heads that share a K/V head, and one part of the columns. Each warp streams
// tiles of columns of its own through a ring of buffers, and waits for no other
// warp. The block merges the states of its warps at the end, and the block that
// is last to be done merges those of the parts, always in the same order.

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

// What a warp keeps in shared memory for itself.
template <class T>
struct WarpViews {
  // The segment whose tiles are being loaded, and the one worked on, if the
  // warp enters that on its own (ToNext). Lane 0 writes both.
  SegmentView<T> loading, computing;
  // Each row's largest score in natural units, if scores are not plain, see
  // Rebase.
  float tops[kDecodeTile];
};

// What a block of threads has in shared memory behind the warps' rings.
template <class Config>
struct DecodeShared {
  TileDescription description;  // written by all threads, in OpenDecodeTile
  DecodeTile tile;              // written by thread 0
  // Written by thread 0. It says whether there is a bias, but not where: that
  // differs from head to head.
  ScoreRule rule;
  OutputPlace outputs[kDecodeTile];  // row r's is written by thread r
  WarpViews<typename Config::T> views[Config::kWarps];  // each warp's own
  WarpStates<Config::kWarps> states;  // written by each warp, read by all
};

// A ring for each warp, kStages tiles of K and V, then DecodeShared.
template <class Config>
constexpr int DecodeSharedBytes() {
  return Config::kWarps * Config::kStages * 2 *
             TileLayout<Config::kDim>::Bytes(Config::kCols) +
         static_cast<int>(sizeof(DecodeShared<Config>));
}

// A warp's part of the work: its tiles of the block's part of the columns.
template <class Config>
class DecodeWarp {
 public:
  using T = typename Config::T;
  static constexpr int kDim = Config::kDim, kCols = Config::kCols,
                       kStages = Config::kStages;
  static constexpr int kN = kCols / 8, kDimTiles = kDim / 8;
  static constexpr int kTileBytes = TileLayout<kDim>::Bytes(kCols);

  // `ring` is the warp's own: kStages slots in shared memory, each a tile of K
  // and a tile of V, [kCols, kDim].
  __device__ DecodeWarp(uint32_t ring, DecodeShared<Config>& shared, int warp,
                        int lane)
      : ring_(ring),
        tile_(shared.tile),
        rule_(shared.rule),
        views_(shared.views[warp]),
        lane_(lane),
        loading_(warp),
        computing_(warp) {}

  // Visits all of the warp's tiles: o and softmax become the rows' a, m and l.
  // `q` is Q as A operands of mma (LoadQ), `ahead` are the tiles whose copies
  // LoadAhead has begun. At the end no copy is in flight.
  __device__ void Run(bool plain, const uint32_t (&q)[kDim / 16][4],
                      TilesAhead ahead, OnlineSoftmax<1>& softmax,
                      float (&o)[1][kDimTiles][4]) {
    const DeviceProblem& p = *tile_.block.sequence.problem;
    const int head_dim = p.head_dim, value_dim = p.value_dim;
    const float factor = rule_.factor(plain);
    // Each slot of the ring has a group of copies, LoadAhead's or one of these,
    // empty where no tile is left. So at least kStages - 1 groups come after a
    // tile's own, and the wait below, for all but as many, is for the tile.
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
      __syncwarp();  // all lanes' copies of the tile in `slot` have arrived
      float s[1][kN][4];
      const uint32_t k = ring_ + 2 * slot * kTileBytes;
      MultiplyLoadedQK(q, k, s);
      const uint32_t column = computing_.column();
      if (!plain) {
        Score(column, s);
        // By way of local memory, to take no registers, as in prefill.cuh.
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
      __syncwarp();  // all lanes have read the tile in `slot`
      if (Advance()) {
        Load(head_dim, value_dim, slot);
      } else {
        ptx::CpAsyncCommit();
      }
      slot = slot + 1 == kStages ? 0 : slot + 1;
    }
    ptx::CpAsyncWait<0>();
    __syncwarp();  // no lane has copies in flight, and all tops are written
    if (!plain) softmax.TakeTops(Tops());
  }

 private:
  // The segment whose tiles are loaded, in registers: K and V of its token 0,
  // elements from token to token, and tokens.
  struct Source {
    const T* k;
    const T* v;
    int64_t k_stride, v_stride, len;
  };

  // Moves loading_ on to the warp's next tile; false if there is none.
  __device__ bool Advance() {
    const int segment = loading_.segment();
    SegmentView<T>& view = views_.loading;
    if (more_) more_ = loading_.Next(tile_.block, lane_ == 0, view);
    if (more_ && loading_.segment() != segment) {
      __syncwarp();  // lane 0 has written the view
      source_ = {view.k, view.v, view.k_stride, view.v_stride, view.len};
      __syncwarp();  // all lanes have read it, so lane 0 may overwrite it
    }
    return more_;
  }
  // Whether loading_'s tile is the one that LoadAhead is copying to this slot.
  // If it is not, ends all of LoadAhead's copies and forgets them.
  __device__ bool IsThere(TilesAhead& ahead) const {
    if (loading_.column() == ahead.column) return true;
    ahead.count = 0;
    ptx::CpAsyncWait<0>();
    __syncwarp();  // all lanes' copies have ended
    return false;
  }
  // Starts copying loading_'s tile to a slot of the ring, as one group.
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

  // Moves computing_ on to the warp's next tile; false if there is none. At a
  // new segment it finds what the lane's rows see there.
  __device__ bool ToNext() {
    if (computing_.Step()) return true;
    // Usually loading_ is in that segment, and has described it already.
    const SegmentView<T>* view = &views_.loading;
    if (more_ && loading_.segment() == computing_.segment() + 1) {
      computing_.Follow(*view);
    } else {
      view = &views_.computing;
      if (!computing_.Enter(tile_.block, lane_ == 0, views_.computing)) {
        return false;
      }
      __syncwarp();  // lane 0 has written the view
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
    __syncwarp();  // all lanes have read the view, so lane 0 may overwrite it
    return true;
  }
  __device__ static uint2 Unsigned(Interval columns) {
    return make_uint2(static_cast<uint32_t>(columns.empty() ? 0 : columns.lo),
                      static_cast<uint32_t>(columns.empty() ? 0 : columns.hi));
  }

  // MultiplyQK of products.cuh for a Q that is in registers.
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

  // Where the largest scores of the lane's two rows are, 8 floats apart.
  __device__ float* Tops() const { return &views_.tops[lane_ / 4]; }

  // Whether the lane's row r (0 or 1) sees a column.
  __device__ bool Sees(int r, uint32_t column) const {
    return column >= seen_[r].x && column < seen_[r].y;
  }

  // Makes -inf what the rows do not see of the tile at `column`, (E21).
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

  // (E1) and (E2), masked, in natural units; each row has its q head's bias.
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
  // loading_ runs up to kStages tiles ahead of computing_.
  ColumnWalk<kCols, Config::kWarps, true> loading_, computing_;
  bool more_ = true;  // whether loading_ stands at a tile
  Source source_{};
  // Columns [x, y) of computing_'s segment: those that all rows see, which need
  // no compare, and those that the lane's rows, lane / 4 and lane / 4 + 8, see.
  uint2 all_{};
  uint2 seen_[2]{};
};

// Finds out what the block's tile is, and begins to read for it meanwhile. On
// return shared.description, tile and rule can be read by all threads;
// `outputs` can be read after another barrier. `q` holds Q, and the tiles that
// are returned are being copied to the warp's ring.
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
  __syncthreads();  // thread 0 has written the tile and the rule
  if (!reads_ahead && tile.valid > 0) {
    LoadQ<Config::kDim, false>(tile.template Rows<typename Config::T>(),
                               tile.valid, open.problem->head_dim, lane, q);
  }
  if (threadIdx.x < tile.stored) {
    shared.outputs[threadIdx.x] = tile.Output(threadIdx.x);
  }
  return ahead;
}

// The launch gives a block of threads to each tile, and DecodeSharedBytes of
// shared memory to each block.
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
  // A launch that reads ahead has no such tile, so no copies are in flight.
  if (tile.stored == 0) return;
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
    // If scores have left f32's range, or may have, the warp does its tiles
    // again with scores in natural units.
    const bool again = softmax.Overflowed(shared.rule.factor(plain)) ||
                       (kProductsOverflow<typename Config::T> &&
                        softmax.HasUnseen(tile.valid, lane));
    if (!plain || !again) break;
    plain = false;
  }
  Stagger();
  // Where all other parts have been counted already, the block merges them with
  // its own state, and needs no record of it.
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
  __syncthreads();  // all warps have written their states and shared.outputs
  MergeAndStore<Config>(tile, shared.outputs, memory, kRingBytes, partials,
                        shared.states);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_DECODE_CUH_
