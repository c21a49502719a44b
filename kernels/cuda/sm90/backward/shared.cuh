#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_SHARED_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_SHARED_CUH_

// What a block of the backward kernel has in shared memory: the tiles, and how
// its producers and its consumers tell each other what is in them.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/sm90/backward/scores.cuh"
#include "kernels/cuda/sm90/backward/tile.cuh"
#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/ring.cuh"

namespace attnd::cuda::sm90 {

// Turns at the sums of dQ, tile by tile: that it is the block's; that all
// consumers have added; and that the next block may.
template <int kCount>
struct Turns {
  uint64_t taken[kCount], added[kCount], over[kCount];

  __device__ void Init(int consumers) {
    for (int i = 0; i < kCount; ++i) {
      ptx::BarrierInit(ptx::SharedAddress(&taken[i]), 1);
      ptx::BarrierInit(ptx::SharedAddress(&added[i]), consumers);
      ptx::BarrierInit(ptx::SharedAddress(&over[i]), 1);
    }
  }
};

// A block of columns, or none, and none comes any more.
struct ColumnSlot {
  ColumnBlock block;
  bool over;
};

// The next tile of a cluster's blocks: the first block has taken it, and is
// told by the second that it knows.
struct TicketExchange {
  uint32_t ticket;
  Ring<1> ring;
};

// What consumers that have columns of their own hand on to the copy engine, and
// what two that share columns hand on to each other.
template <class Config, bool kWide = Config::kWide>
struct ConsumersTiles {
  // dQ of a tile: each warp's part, as the sums lie.
  alignas(1024) float d_q[Config::kConsumers][4][Config::kWarpDqFloats];
};
template <class Config>
struct ConsumersTiles<Config, true> {
  // P of a tile, as the threads that have found it hold it: four values of
  // each lane side by side, for the same lane of the other consumer.
  alignas(1024) float4 p[4][Config::kRows / 8][32];
};

// What a block of a cluster has of its neighbour's.
template <class Config, bool kPaired = Config::kCluster == 2>
struct OthersTiles {};
template <class Config>
struct OthersTiles<Config, true> {
  // Columns of K that become this block's part of dQ, in panels.
  alignas(1024) std::byte other_k[Config::kOtherPanels * Config::kCols * 128];
  // dS of a tile of rows and of the next.
  alignas(1024) std::byte other_ds[2][Config::kDsBytes];
};

template <class Config>
struct WideExchange {
  Ring<1> p_rings[4];  // of each warp: its part of P
  // Of dS: full when it is there, empty when all consumers of the cluster have
  // read it.
  Ring<2> ds_ring;
  uint64_t other_ds_full[2], other_k_full;

  // For one thread.
  __device__ void InitBarriers(int producers) {
    for (Ring<1>& ring : p_rings) ring.Init(1, 1);
    ds_ring.Init(4, 4 * Config::kConsumers * Config::kCluster);
    ptx::BarrierInit(ptx::SharedAddress(&other_k_full), producers);
    for (uint64_t& full : other_ds_full) {
      ptx::BarrierInit(ptx::SharedAddress(&full), 1);
    }
  }
};

// dQ of a tile, of each consumer, on its way to the sums.
template <class Config>
struct NarrowExchange {
  Ring<1> dq_rings[Config::kConsumers];

  __device__ void InitBarriers(int) {
    for (Ring<1>& ring : dq_rings) ring.Init(4, 1);
  }
};

template <class Config>
struct BackwardShared : ConsumersTiles<Config>, OthersTiles<Config> {
  // Of every tile the one has copied what the copy engine can copy, and the
  // other has done the rest.
  static constexpr int kProducers = 2;

  alignas(1024) std::byte k[Config::kKBytes];
  alignas(1024) std::byte v[Config::kVBytes];
  alignas(1024) std::byte q[Config::kStages][Config::kQBytes];
  alignas(1024) std::byte d_o[Config::kDoStages][Config::kDoBytes];
  // dS of a tile of rows and of the next: [rows, cols], in panels.
  alignas(1024) std::byte d_s[2][Config::kDsBytes];
  alignas(128) float lse[Config::kStages][Config::kRows];
  alignas(128) float delta[Config::kDoStages][Config::kRows];
  RowTile tiles[Config::kTiles];
  // Of the block's columns, which there is place for once.
  uint64_t k_full, v_full, columns_empty;
  // Of Q, LSE and RowTile; of dO and delta.
  Ring<Config::kStages> q_ring;
  Ring<Config::kDoStages> do_ring;
  bool in_turns;  // whether blocks take turns at the sums of dQ (turns.cuh)
  Turns<Config::kStages> turns;
  // The block of columns at hand, and the next.
  ColumnSlot slots[2];
  Ring<2> slot_ring;
  TicketExchange tickets;
  SeenBy seen_by[Config::kCols];
  std::conditional_t<Config::kWide, WideExchange<Config>,
                     NarrowExchange<Config>>
      exchange;

  // For one thread.
  __device__ void Init(bool turns_are_taken) {
    in_turns = turns_are_taken;
    constexpr int kWarps = 4 * Config::kConsumers;
    constexpr int kCopiers = 2, kSenders = Config::kCluster == 2 ? 1 : 0;
    // Those who add narrow consumers' dQ, or who take and end wide ones' turns.
    const int adders = !Config::kWide ? 1 : in_turns ? 2 : 0;
    slot_ring.Init(1, kWarps + kCopiers + kSenders + adders);
    for (ColumnSlot& slot : slots) slot.over = false;
    tickets.ring.Init(1, 1);
    ptx::BarrierInit(ptx::SharedAddress(&k_full), kProducers);
    ptx::BarrierInit(ptx::SharedAddress(&v_full), kProducers);
    ptx::BarrierInit(ptx::SharedAddress(&columns_empty), kWarps);
    q_ring.Init(kProducers, kWarps);
    do_ring.Init(kProducers, kWarps);
    turns.Init(kWarps);
    exchange.InitBarriers(kProducers);
    ptx::FenceBarrierInit();
  }
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_SHARED_CUH_
