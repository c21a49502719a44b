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

// Turns of wide consumers at the sums of dQ, tile by tile (turn_keeper.cuh).
// taken: who takes turns → consumers, the turn is the block's.
// added: every warp of the consumers → who ends turns, it has added its part.
// over: who ends turns → who takes turns, the barriers may be used again.
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

// A block of columns or, if `over`, none: no more come.
struct ColumnSlot {
  ColumnBlock block;
  bool over;
};

// The next tile of a cluster, which block 0's loader takes and block 1's reads.
// full, in block 1: block 0's loader → block 1's, the ticket is there.
// empty, in block 0: block 1's loader → block 0's, it has read the ticket.
struct TicketExchange {
  uint32_t ticket;
  Ring<1> ring;
};

// What narrow consumers hand on to the copy engine, and what wide ones hand on
// to each other.
template <class Config, bool kWide = Config::kWide>
struct ConsumersTiles {
  // dQ of a tile in the order of its sums: each warp of the consumers writes
  // its 16 rows, and the copy engine adds them.
  alignas(1024) float d_q[Config::kConsumers][4][Config::kWarpDqFloats];
};
template <class Config>
struct ConsumersTiles<Config, true> {
  // P^T of a tile, [warp][eight rows][lane]: four values of a lane of the
  // consumer that has S, for the same lane of the one that has dP.
  alignas(1024) float4 p[4][Config::kRows / 8][32];
};

// What a block of a cluster has of its neighbour's tiles.
template <class Config, bool kPaired = Config::kCluster == 2>
struct OthersTiles {};
template <class Config>
struct OthersTiles<Config, true> {
  // The neighbour's K, T [kCols, 64 kOtherPanels]: the dims of this block's
  // part of dQ.
  alignas(1024) std::byte other_k[Config::kOtherPanels * Config::kCols * 128];
  // The neighbour's dS of a tile of rows and of the next, as d_s. Its DsSender
  // puts it here, this block's consumers read it.
  alignas(1024) std::byte other_ds[2][Config::kDsBytes];
};

// Barriers of what wide consumers hand on.
template <class Config>
struct WideExchange {
  // p. full: a warp that has S → the same one of those that have dP; empty: the
  // latter → the former.
  Ring<1> p_rings[4];
  // d_s. full: the four warps that have dP → consumers, sender; empty: every
  // warp of the cluster's consumers → the warps that have dP.
  Ring<2> ds_ring;
  // other_ds: the neighbour's sender → consumers. other_k: as k_full.
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

// Barriers of d_q. full: the consumer's four warps → the adder of dQ; empty:
// the adder → the consumer, when the copy engine has read it.
template <class Config>
struct NarrowExchange {
  Ring<1> dq_rings[Config::kConsumers];

  __device__ void InitBarriers(int) {
    for (Ring<1>& ring : dq_rings) ring.Init(4, 1);
  }
};

template <class Config>
struct BackwardShared : ConsumersTiles<Config>, OthersTiles<Config> {
  // Who brings a tile of K, V, Q or dO: the loader, by the copy engine, and the
  // tail copier, which has copied what that cannot.
  static constexpr int kProducers = 2;

  // Tiles in panels (config.h): T [kCols, dim] of K and V, T [kRows, dim] of Q
  // and dO.
  alignas(1024) std::byte k[Config::kKBytes];
  alignas(1024) std::byte v[Config::kVBytes];
  alignas(1024) std::byte q[Config::kStages][Config::kQBytes];
  alignas(1024) std::byte d_o[Config::kDoStages][Config::kDoBytes];
  // dS of a tile of rows and of the next: T [kRows, kCols], in panels.
  // Consumers write and read it.
  alignas(1024) std::byte d_s[2][Config::kDsBytes];
  // LSE in units of log2 or kHugeLse, and delta: they come with Q and dO.
  alignas(128) float lse[Config::kStages][Config::kRows];
  alignas(128) float delta[Config::kDoStages][Config::kRows];
  RowTile tiles[Config::kTiles];
  // K and V, of which there is one each. full: both producers → consumers;
  // empty: every warp of the consumers → loader and tail copiers.
  uint64_t k_full, v_full, columns_empty;
  // Q, LSE and RowTile. full: loader, describer → consumers; empty: every warp
  // of the consumers → both of them.
  Ring<Config::kStages> q_ring;
  // dO and delta: the same with the value copier.
  Ring<Config::kDoStages> do_ring;
  bool in_turns;  // whether blocks take turns at the sums of dQ (turns.cuh)
  Turns<Config::kStages> turns;
  // The block of columns at hand, and the next. full: loader → all who look at
  // it; empty: all of them → loader.
  ColumnSlot slots[2];
  Ring<2> slot_ring;
  TicketExchange tickets;
  SeenBy seen_by[Config::kCols];  // each warp of consumers has its own 16
  std::conditional_t<Config::kWide, WideExchange<Config>,
                     NarrowExchange<Config>>
      exchange;

  // For one thread.
  __device__ void Init(bool turns_are_taken) {
    in_turns = turns_are_taken;
    constexpr int kWarps = 4 * Config::kConsumers;
    constexpr int kCopiers = 2, kSenders = Config::kCluster == 2 ? 1 : 0;
    // The adder of narrow consumers' dQ, or the two who keep wide ones' turns.
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
