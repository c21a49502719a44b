#ifndef ATTND_KERNELS_CUDA_SM80_DECODE_CUH_
#define ATTND_KERNELS_CUDA_SM80_DECODE_CUH_

// Forward for sequences of few queries, 16-bit inputs: bound by reading K and
// V. A block of threads has 16 rows, queries of all the heads that share a K/V
// head, and one part of the columns. Each warp streams tiles of columns of its
// own through a ring of buffers, and waits for nobody. Their states are merged
// at the end, and those of the parts by whichever block is the last to be done,
// always in the same order.

#include <cstdint>

#include "kernels/cuda/open_tile.cuh"
#include "kernels/cuda/score.cuh"
#include "kernels/cuda/sequence.h"
#include "kernels/cuda/sm80/column_walk.cuh"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/decode_tile.cuh"
#include "kernels/cuda/sm80/partials.cuh"
#include "kernels/cuda/sm80/products.cuh"
#include "kernels/cuda/sm80/softmax.cuh"
#include "kernels/cuda/sm80/tile.cuh"

namespace attnd::cuda::sm80 {

// The segments that a warp has come to.
template <class T>
struct WarpViews {
  SegmentView<T> loading, computing;
};

template <class Config>
struct DecodeShared {
  TileDescription description;
  DecodeTile tile;
  ScoreRule rule;  // but for the bias, which differs from head to head
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

  __device__ void Run(bool plain, OnlineSoftmax<1>& softmax,
                      float (&o)[1][kDimTiles][4]) {
    const DeviceProblem& p = *tile_.block.sequence.problem;
    const int head_dim = p.head_dim, value_dim = p.value_dim;
    const float factor = rule_.factor(plain);
    int load_slot = 0, slot = 0;
    // First, as it would come behind all copies on their way.
    uint32_t q[kDim / 16][4];
    LoadQ(q);
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) Load(head_dim, value_dim, load_slot);
#pragma unroll 1
    while (ToNext()) {
      Load(head_dim, value_dim, load_slot);
      ptx::CpAsyncWait<kStages - 1>();
      __syncwarp();  // all lanes have the tile
      float s[1][kN][4];
      const uint32_t k = ring_ + 2 * slot * kTileBytes;
      MultiplyLoadedQK(q, k, s);
      const uint32_t column = computing_.column();
      if (!plain) {
        Score(column, s);
      } else if (column < all_.x || column + kCols > all_.y) {
        Mask(column, s);
      }
      softmax.Update(s, o, factor);
      AddPV<T, kDim>(s, k + kTileBytes, lane_, o);
      slot = slot + 1 == kStages ? 0 : slot + 1;
      __syncwarp();  // all lanes have left the tile
    }
    ptx::CpAsyncWait<0>();
    __syncwarp();
  }

 private:
  // Where the tiles come from that are loaded.
  struct Source {
    const T* k;
    const T* v;
    int64_t k_stride, v_stride, len;
  };

  // Starts loading the warp's next tile into the ring's next slot.
  __device__ void Load(int head_dim, int value_dim, int& slot) {
    const int segment = loading_.segment();
    SegmentView<T>& view = views_.loading;
    if (more_) more_ = loading_.Next(tile_.block, lane_ == 0, view);
    if (more_) {
      if (loading_.segment() != segment) {
        __syncwarp();  // all lanes have the view
        source_ = {view.k, view.v, view.k_stride, view.v_stride, view.len};
        __syncwarp();  // all lanes have left it
      }
      const int64_t column = loading_.column();
      const int valid =
          static_cast<int>(min(source_.len - column, int64_t{kCols}));
      const uint32_t k = ring_ + 2 * slot * kTileBytes;
      LoadTile<kDim, kCols, 32, Reads::kOnce>(
          k, source_.k + column * source_.k_stride, source_.k_stride, valid,
          head_dim, lane_);
      LoadTile<kDim, kCols, 32, Reads::kOnce>(
          k + kTileBytes, source_.v + column * source_.v_stride,
          source_.v_stride, valid, value_dim, lane_);
    }
    ptx::CpAsyncCommit();
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }

  // Moves on to the warp's next tile, to be worked on.
  __device__ bool ToNext() {
    const int segment = computing_.segment();
    const SegmentView<T>& view = views_.computing;
    if (!computing_.Next(tile_.block, lane_ == 0, views_.computing))
      return false;
    if (computing_.segment() == segment) return true;
    __syncwarp();  // all lanes have the view
    const RowIntervals rows =
        tile_.block.sequence.Intervals(computing_.segment());
    all_ = Unsigned(view.all);
    for (int r = 0; r < 2; ++r) {
      const int row = lane_ / 4 + 8 * r;
      const bool valid = row < tile_.valid;
      seen_[r] = Unsigned(valid ? Both(rows.Row(tile_.Row(row)), view.looked_at)
                                : Interval{});
    }
    __syncwarp();  // all lanes have left it
    return true;
  }
  __device__ static uint2 Unsigned(Interval columns) {
    return make_uint2(static_cast<uint32_t>(columns.empty() ? 0 : columns.lo),
                      static_cast<uint32_t>(columns.empty() ? 0 : columns.hi));
  }

  // Q as mma's A, straight from memory.
  __device__ void LoadQ(uint32_t (&q)[kDim / 16][4]) const {
    const Sequence& sequence = tile_.block.sequence;
    const DeviceProblem& p = *sequence.problem;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane_ / 4 + 8 * r;
      const auto* from = static_cast<const uint16_t*>(p.q.data) +
                         sequence.b * p.q.batch_stride;
      if (row < tile_.valid) {
        from += tile_.Head(row) * p.q.head_stride +
                tile_.Row(row) * p.q.token_stride;
      }
      const int dim = row < tile_.valid ? p.head_dim : 0;
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = 16 * d + 8 * half + 2 * (lane_ % 4);
          const uint32_t low = column < dim ? from[column] : 0;
          const uint32_t high = column + 1 < dim ? from[column + 1] : 0;
          q[d][2 * half + r] = low | high << 16;
        }
      }
    }
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
          s[0][n][i] = Sees(r, j) ? rule.Log2(s[0][n][i], tile_.Row(row),
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

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    DecodeKernel(const __grid_constant__ LaunchParams params) {
  extern __shared__ __align__(1024) std::byte memory[];
  constexpr int kRingBytes =
      Config::kStages * 2 * TileLayout<Config::kDim>::Bytes(Config::kCols);
  auto& shared = *reinterpret_cast<DecodeShared<Config>*>(
      memory + Config::kWarps * kRingBytes);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  std::byte* ring = memory + warp * kRingBytes;
  const OpenTile open = FindTile<Config::kThreads>(
      params, params.first_tile + blockIdx.x, shared.description);
  if (threadIdx.x == 0) {
    shared.tile = MakeDecodeTile(BlobOf(params), open);
    shared.rule = MakeScoreRule(*open.problem, shared.tile.block.sequence.b, 0);
  }
  __syncthreads();  // all have the tile
  if (shared.tile.stored == 0) return;
  OnlineSoftmax<1> softmax;
  float o[1][Config::kDim / 8][4];
  bool plain = shared.rule.plain();
  while (true) {
    softmax = {};
#pragma unroll
    for (auto& x : o[0]) x[0] = x[1] = x[2] = x[3] = 0.0f;
    if (shared.tile.valid > 0) {
      DecodeWarp<Config>(ptx::SharedAddress(ring), shared, warp, lane)
          .Run(plain, softmax, o);
    }
    if (!plain || !softmax.Overflowed(shared.rule.factor(plain))) break;
    plain = false;
  }
  PutWarpState<Config::kDim>(softmax, shared.rule.factor(plain), o, warp, lane,
                             reinterpret_cast<float*>(ring), shared.states);
  __syncthreads();  // all states are there
  MergeAndStore<Config>(shared.tile, memory, kRingBytes, shared.states, params);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_DECODE_CUH_
