#ifndef ATTND_KERNELS_CUDA_SM90_LOAD_CUH_
#define ATTND_KERNELS_CUDA_SM90_LOAD_CUH_

// Tiles of Q, K and V on their way to shared memory: by the copy engine, which
// writes 0 for what lies outside a tensor. The end of a sequence that is
// shorter than its tensor is copied by the warp itself, since padding is never
// read.

#include <cstdint>

#include "kernels/cuda/sm90/shared.cuh"
#include "kernels/cuda/sm90/tensor_maps.h"

namespace attnd::cuda::sm90 {

// Copies rows of `dim` elements, 16 bytes at a time, to a tile; rows from
// `valid` on and columns from `dim` on become 0.
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

// Where the copy engine finds a tile. To be known before there is room for it:
// reading it takes as long as a wait.
struct Box {
  const CUtensorMap* map;
  int token, head, b;
};
// Starts copying a tile. The bytes count for `full`, to which they must be
// announced.
template <int kPanels, int kTileRows>
__device__ void StartBox(const Box& box, uint32_t to, uint32_t full) {
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    ptx::TmaLoad(to + panel * kTileRows * 128, box.map, 64 * panel, box.token,
                 box.head, box.b, full);
  }
}

// Before a warp's first use of a map that is in memory, not a parameter.
__device__ inline void AcquireMap(const LoadSlot& tile, int map, int lane) {
  if (tile.copied && lane == 0) ptx::FenceTensorMap(tile.maps + map);
}

// Rows of a tile that one consumer has.
struct ConsumerRows {
  int first;  // of the sequence
  int valid;
  bool cut;  // there are others, that are not to be read

  __device__ ConsumerRows(const LoadSlot& tile, int consumer)
      : first(tile.first_row + consumer * kConsumerRows),
        valid(
            min(max(tile.valid - consumer * kConsumerRows, 0), kConsumerRows)),
        cut(valid < kConsumerRows &&
            first + valid < tile.description.problem.q_len) {}
};

// For a warp: a consumer's rows of Q, once there is room.
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

// Has a consumer's rows brought from memory to the cache.
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

// For a warp: as much of a tile of K or V, from `column` of a segment on, as is
// not padding.
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
