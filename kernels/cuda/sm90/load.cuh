#ifndef ATTND_KERNELS_CUDA_SM90_LOAD_CUH_
#define ATTND_KERNELS_CUDA_SM90_LOAD_CUH_

// How tiles of Q, K and V come to shared memory. Mostly the copy engine brings
// them, and writes 0 for what lies outside a tensor. Where a sequence ends
// before its tensor does, the warp copies the tile itself, since padding is
// never read.

#include <cstdint>

#include "kernels/cuda/sm90/shared.cuh"
#include "kernels/cuda/sm90/tensor_maps.h"
#include "kernels/cuda/tile/row.cuh"

namespace attnd::cuda::sm90 {

// For a warp: copies rows of `dim` 16-bit elements, `stride` elements apart, to
// the tile [kTileRows, 64 kPanels] at `tile`. Rows from `valid` on and columns
// from `dim` on become 0.
template <int kPanels, int kTileRows>
__device__ void CopyRows(uint32_t tile, const void* from, int64_t stride,
                         int valid, int dim, int lane) {
  constexpr int kChunks = 8 * kPanels;
#pragma unroll 2
  for (int i = lane; i < kTileRows * kChunks; i += 32) {
    const int row = i / kChunks, chunk = i % kChunks;
    uint4 data = make_uint4(0, 0, 0, 0);
    if (row < valid && 8 * chunk < dim) {
      data = *reinterpret_cast<const uint4*>(
          static_cast<const uint16_t*>(from) + row * stride + 8 * chunk);
    }
    ptx::StoreShared16(tile + chunk / 8 * kTileRows * 128 + row * 128 +
                           ((chunk ^ row) % 8) * 16,
                       data);
  }
  ptx::FenceAsyncProxy();
  __syncwarp();
}

// Where the copy engine finds a tile. Loaders read this from shared memory
// before they wait for room, as reading it takes as long as a wait.
struct Box {
  const CUtensorMap* map;
  int token, head, b;
};
// Has the copy engine begin with a tile [kTileRows, 64 kPanels]. Its bytes
// count for `full`, to which they must be announced.
template <int kPanels, int kTileRows>
__device__ void StartBox(const Box& box, uint32_t to, uint32_t full) {
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    ptx::TmaLoad(to + panel * kTileRows * 128, box.map, 64 * panel, box.token,
                 box.head, box.b, full);
  }
}

// For a warp, before it first uses a map, which may be in memory and not in the
// parameters.
__device__ inline void AcquireMap(const LoadSlot& tile, int map, int lane) {
  if (tile.copied && lane == 0) ptx::FenceTensorMap(tile.maps + map);
}

// The rows of a tile that one consumer has.
struct ConsumerRows {
  int first;  // the first one's number in the sequence
  int valid;  // how many of them, the first ones, may see something
  bool cut;   // the tensor goes on after those, but must not be read there

  __device__ ConsumerRows(const LoadSlot& tile, int consumer)
      : first(tile.first_row + consumer * kConsumerRows),
        valid(
            min(max(tile.valid - consumer * kConsumerRows, 0), kConsumerRows)),
        cut(valid < kConsumerRows &&
            first + valid < tile.description.problem.q_len) {}
};

// For a warp, once there is room: brings a consumer's rows of Q to `to`, a tile
// [64, kDim]. `full` ends its phase when they are there.
template <class Config>
__device__ void LoadQ(const LoadSlot& tile, const ConsumerRows& rows,
                      const Box& box, uint32_t to, uint32_t full, int lane) {
  if (rows.cut) {
    const DeviceProblem& p = tile.description.problem;
    const auto* from = static_cast<const uint16_t*>(p.q.data) +
                       tile.b * p.q.batch_stride + tile.head * p.q.head_stride +
                       rows.first * p.q.token_stride;
    CopyRows<Config::kDimPanels, kConsumerRows>(to, from, p.q.token_stride,
                                                rows.valid, p.head_dim, lane);
    if (lane == 0) ptx::BarrierArrive(full);
  } else if (lane == 0) {
    ptx::BarrierArriveExpect(full, Config::kQBytes);
    StartBox<Config::kDimPanels, kConsumerRows>(box, to, full);
  }
}

// Has a consumer's rows of Q brought from memory to the L2 cache.
template <class Config>
__device__ void PrefetchQ(const LoadSlot& tile, int consumer, int lane) {
  const ConsumerRows rows(tile, consumer);
  if (lane != 0 || rows.cut) return;
#pragma unroll
  for (int panel = 0; panel < Config::kDimPanels; ++panel) {
    ptx::TmaPrefetch(tile.maps + kMapQ, 64 * panel, rows.first, tile.head,
                     tile.b);
  }
}

// For a warp: has what the tile's rows are merged with, which it must have,
// brought to the L2 cache: LSE and, where the copy engine can read it, O.
__device__ inline void PrefetchState(const LoadSlot& tile, int lane) {
  constexpr int kLineRows = 32;  // rows of LSE in a line of the cache
  const DeviceProblem& p = tile.description.problem;
  const auto& state = *At<DeviceState>(tile.sequence.blob, p.before);
  const float* lse = state.lse.data + tile.b * state.lse.batch_stride +
                     tile.head * state.lse.head_stride + tile.first_row;
  const int row = lane * kLineRows;
  if (row < tile.valid) ptx::Prefetch(lse + row);
  if (p.o.data == nullptr) return;
  const float* o =
      static_cast<const float*>(state.o.data) + tile.b * state.o.batch_stride +
      tile.head * state.o.head_stride + tile.first_row * state.o.token_stride;
  if (!IsAligned(o, state.o.token_stride)) return;
#pragma unroll 1
  for (int i = lane; i < tile.valid; i += 32) {
    ptx::BulkPrefetch(o + i * state.o.token_stride, p.value_dim * 4);
  }
}

// For a warp: copies as much of a tile of K or V, from `column` of a segment
// on, as is not padding, to `to`. `dim` is head_dim or value_dim.
template <int kPanels, int kCols>
__device__ void CopyColumns(const LoadSlot& tile, int segment, int column,
                            const ConstTensorView& view, int dim, uint32_t to,
                            int lane) {
  const auto* from =
      static_cast<const uint16_t*>(view.data) + tile.b * view.batch_stride +
      tile.kv_head * view.head_stride + column * view.token_stride;
  const int64_t left = tile.sequence.Len(segment) - column;
  CopyRows<kPanels, kCols>(to, from, view.token_stride,
                           static_cast<int>(min(left, int64_t{kCols})), dim,
                           lane);
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_LOAD_CUH_
