#ifndef ATTND_KERNELS_CUDA_SM80_DECODE_CUH_
#define ATTND_KERNELS_CUDA_SM80_DECODE_CUH_

// Forward for sequences of few queries, 16-bit inputs: bound by reading K and
// V. A block of threads has 16 rows, queries of all the heads that share a K/V
// head, and one part of the columns. Each warp streams tiles of columns of its
// own through a ring of buffers, and waits for nobody. Their states are merged
// at the end, and those of the parts by whichever block is the last to be done,
// always in the same order.

#include <cstdint>

#include "kernels/cuda/sequence.h"
#include "kernels/cuda/sm80/column_walk.cuh"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/open_tile.cuh"
#include "kernels/cuda/sm80/partials.cuh"
#include "kernels/cuda/sm80/products.cuh"
#include "kernels/cuda/sm80/score.cuh"
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
  RowBlock block;
  WarpViews<typename Config::T> views[Config::kWarps];
  WarpStates<Config::kWarps> states;
};

template <class Config>
constexpr int DecodeSharedBytes() {
  return Config::kWarps * Config::kStages * 2 *
             TileLayout<Config::kDim>::Bytes(Config::kCols) +
         static_cast<int>(sizeof(DecodeShared<Config>));
}

// What a block of threads decodes: rows [first, first + stored) of a K/V head
// of a sequence, of which the first `valid` may see something.
struct DecodeTile {
  Sequence sequence;
  int64_t kv_head;
  int64_t row_tile;  // in the run
  int64_t first;
  int valid, stored;
  int split, splits;  // the part of the columns, and how many there are

  __device__ int64_t Row(int r) const {
    return Divide(first + r, sequence.problem->group).quotient;
  }
  __device__ int64_t Head(int r) const {
    const int64_t group = sequence.problem->group;
    return kv_head * group + Divide(first + r, group).remainder;
  }
};

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
  __device__ DecodeWarp(uint32_t ring, const RowBlock& block,
                        WarpViews<T>& views, int warp, int lane)
      : ring_(ring),
        block_(block),
        views_(views),
        lane_(lane),
        loading_(warp),
        computing_(warp) {}

  __device__ void Run(const DecodeTile& tile, OnlineSoftmax<1>& softmax,
                      float (&o)[1][kDimTiles][4]) {
    const DeviceProblem& p = *tile.sequence.problem;
    uint32_t q[kDim / 16][4];
    LoadQ(tile, q);
    const bool plain = MakeScoreRule(p, tile.sequence.b, 0).plain();
    const float factor = MakeScoreRule(p, tile.sequence.b, 0).factor();
    int load_slot = 0, slot = 0;
    const int head_dim = p.head_dim, value_dim = p.value_dim;
    const auto load = [&] { Load(head_dim, value_dim, load_slot); };
    for (int i = 0; i < kStages - 1; ++i) load();
    while (ToNext(tile)) {
      ptx::CpAsyncWait<kStages - 2>();
      __syncwarp();  // all lanes have the tile, and have left the one before
      load();
      float s[1][kN][4];
      const uint32_t k = ring_ + 2 * slot * kTileBytes;
      MultiplyLoadedQK(q, k, s);
      const uint32_t column = computing_.column();
      if (!plain) {
        Score(tile, column, s);
      } else if (column < all_.x || column + kCols > all_.y) {
        Mask(column, s);
      }
      softmax.Update(s, o, factor);
      AddPV<T, kDim>(s, k + kTileBytes, lane_, o);
      slot = slot + 1 == kStages ? 0 : slot + 1;
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
    if (more_) more_ = loading_.Next(block_, lane_ == 0, view);
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
      LoadTile<kDim, kCols, 32>(k, source_.k + column * source_.k_stride,
                                source_.k_stride, valid, head_dim, lane_);
      LoadTile<kDim, kCols, 32>(k + kTileBytes,
                                source_.v + column * source_.v_stride,
                                source_.v_stride, valid, value_dim, lane_);
    }
    ptx::CpAsyncCommit();
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }

  // Moves on to the warp's next tile, to be worked on.
  __device__ bool ToNext(const DecodeTile& tile) {
    const int segment = computing_.segment();
    const SegmentView<T>& view = views_.computing;
    if (!computing_.Next(block_, lane_ == 0, views_.computing)) return false;
    if (computing_.segment() == segment) return true;
    __syncwarp();  // all lanes have the view
    const RowIntervals rows = tile.sequence.Intervals(computing_.segment());
    all_ = Unsigned(view.all);
    for (int r = 0; r < 2; ++r) {
      const int row = lane_ / 4 + 8 * r;
      const bool valid = row < tile.valid;
      seen_[r] = Unsigned(valid ? Both(rows.Row(tile.Row(row)), view.looked_at)
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
  __device__ void LoadQ(const DecodeTile& tile,
                        uint32_t (&q)[kDim / 16][4]) const {
    const DeviceProblem& p = *tile.sequence.problem;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane_ / 4 + 8 * r;
      const auto* from = static_cast<const uint16_t*>(p.q.data) +
                         tile.sequence.b * p.q.batch_stride;
      if (row < tile.valid) {
        from +=
            tile.Head(row) * p.q.head_stride + tile.Row(row) * p.q.token_stride;
      }
      const int dim = row < tile.valid ? p.head_dim : 0;
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

  __device__ void Score(const DecodeTile& tile, uint32_t column,
                        float (&s)[1][kN][4]) const {
    const Sequence& sequence = tile.sequence;
    const int64_t bias_column =
        sequence.segment(computing_.segment()).bias_column;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(lane_ / 4 + 8 * r, tile.valid - 1);
      const ScoreRule rule =
          MakeScoreRule(*sequence.problem, sequence.b, tile.Head(row));
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          const uint32_t j = column + 8 * n + 2 * (lane_ % 4) + i % 2;
          s[0][n][i] =
              Sees(r, j) ? rule.Log2(s[0][n][i], tile.Row(row), bias_column + j)
                         : -INFINITY;
        }
      }
    }
  }

  const uint32_t ring_;
  const RowBlock& block_;
  WarpViews<T>& views_;
  const int lane_;
  ColumnWalk<kCols, Config::kWarps> loading_, computing_;
  bool more_ = true;
  Source source_{};
  uint2 all_{};      // the columns of the segment that need no compare
  uint2 seen_[2]{};  // and those that the lane's two rows see
};

// The tile that a block of threads of the launch has; nothing is stored in one
// that has no rows, or a part that the sequence is too short for.
__device__ inline DecodeTile MakeDecodeTile(const std::byte* blob,
                                            const OpenTile& open) {
  const DeviceProblem& p = *open.problem;
  DecodeTile tile{};
  // Heads run fastest: side by side they read whole tokens of K and V.
  const Quotient head = Divide(open.index, p.kv_heads);
  const Quotient row_block = Divide(head.quotient, open.row_blocks);
  const Quotient split = Divide(row_block.quotient, open.splits);
  const int64_t b = split.quotient;
  tile.kv_head = head.remainder;
  tile.split = static_cast<int>(split.remainder);
  tile.row_tile =
      (b * p.kv_heads + tile.kv_head) * open.row_blocks + row_block.remainder;
  tile.first = row_block.remainder * kDecodeTile;
  tile.sequence = open.sequence(blob, b);
  if (!IsDecode(tile.sequence.q_len)) return tile;
  const auto within = [&](int64_t rows) {
    return static_cast<int>(min(max(rows * p.group - tile.first, int64_t{0}),
                                int64_t{kDecodeTile}));
  };
  tile.valid = within(tile.sequence.q_len);
  tile.stored = within(min(p.q_len, kDecodeRows));
  tile.splits =
      static_cast<int>(tile.valid > 0 ? Splits(tile.sequence.kv_len) : 1);
  if (tile.split >= tile.splits) tile.stored = 0;
  return tile;
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads)
    DecodeKernel(const __grid_constant__ LaunchParams params) {
  extern __shared__ __align__(1024) std::byte memory[];
  constexpr int kRingBytes =
      Config::kStages * 2 * TileLayout<Config::kDim>::Bytes(Config::kCols);
  auto& shared = *reinterpret_cast<DecodeShared<Config>*>(
      memory + Config::kWarps * kRingBytes);
  const std::byte* blob = BlobOf(params);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int64_t index = blockIdx.x; index < params.num_tiles;
       index += gridDim.x) {
    const OpenTile open = FindTile(params, index, shared.description);
    const DecodeTile tile = MakeDecodeTile(blob, open);
    if (tile.stored == 0) {
      __syncthreads();  // all have left the description
      continue;
    }
    if (threadIdx.x == 0) {
      shared.block = {
          tile.sequence,
          tile.kv_head,
          tile.Row(0),
          tile.Row(max(tile.valid - 1, 0)),
          tile.split * kSplitColumns,
          min((tile.split + 1) * kSplitColumns, tile.sequence.kv_len)};
    }
    __syncthreads();  // all have shared.block
    OnlineSoftmax<1> softmax;
    float o[1][Config::kDim / 8][4] = {};
    std::byte* ring = memory + warp * kRingBytes;
    if (tile.valid > 0) {
      DecodeWarp<Config>(ptx::SharedAddress(ring), shared.block,
                         shared.views[warp], warp, lane)
          .Run(tile, softmax, o);
    }
    const float factor =
        MakeScoreRule(*open.problem, tile.sequence.b, 0).factor();
    PutWarpState<Config::kDim>(softmax, factor, o, warp, lane,
                               reinterpret_cast<float*>(ring), shared.states);
    __syncthreads();  // all states are there
    const Partials partials(params, open, tile.row_tile, Config::kDim);
    MergeAndStore<Config>(tile, memory, kRingBytes, shared.states, partials);
    __syncthreads();  // shared memory is free again
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_DECODE_CUH_
