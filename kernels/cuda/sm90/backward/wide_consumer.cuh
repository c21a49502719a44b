#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_WIDE_CONSUMER_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_WIDE_CONSUMER_CUH_

// The wide consumers, for large dims, where dK and dV of 64 columns fill the
// registers of two warpgroups. They share a block's columns: one has S, P and
// dV, the other dP, dS and dK (wide_roles.cuh), and each has half of dQ's
// columns. P goes from one to the other, dS to both, through shared memory.
// Products run while other units work on the results of those before. This is
// the first consumer; the second does the same with dP, dS and dK:
//
//   tensor cores    dQ (i-1) │ dV (i)   dQ (i-1), S (i+1)  │ dQ (i) ...
//   the others         P (i) │ add dQ (i-1)   add dQ (i-1) │  P (i+1) ...

#include <cstdint>

#include "kernels/cuda/sm90/backward/add_to_sums.cuh"
#include "kernels/cuda/sm90/backward/block_walk.cuh"
#include "kernels/cuda/sm90/backward/products.cuh"
#include "kernels/cuda/sm90/backward/shared.cuh"
#include "kernels/cuda/sm90/backward/wide_roles.cuh"
#include "kernels/cuda/sm90/ring.cuh"
#include "kernels/cuda/sm90/uniform.cuh"

namespace attnd::cuda::sm90 {

// Role: ScoresRole or GradientsRole. "Scores" are the role's S or dP, and
// "sums" its dV or dK.
template <class Config, class Role>
class WideConsumer {
 public:
  using T = typename Config::T;
  static constexpr int kRows = Config::kRows, kCols = Config::kCols;

  __device__ explicit WideConsumer(BackwardShared<Config>& shared)
      : shared_(shared), role_(shared), in_turns_(Uniform(shared.in_turns)) {}

  __device__ void Run() {
    BlockWalk<Config> blocks(shared_);
    while (const ColumnBlock* block = blocks.Next()) {
      role_.Open(*block);
      Sums sums;
#pragma unroll
      for (float& x : sums) x = 0.0f;
      WaitFor(shared_.k_full, blocks.parity());
      WaitFor(shared_.v_full, blocks.parity());
      if constexpr (kPaired)
        WaitFor(shared_.exchange.other_k_full, blocks.parity());
      const int tiles = Uniform(block->tiles());
      if (tiles > 0) Loop(tiles, sums);
      WarpArrives(shared_.columns_empty);
      role_.Store(sums);
      blocks.LeaveTogether();
    }
    // The cluster's other block may still reach for this one's shared memory,
    // until both are here.
    if constexpr (kPaired) {
      ptx::ClusterArrive();
      ptx::ClusterWait();
    }
  }

 private:
  using S = float[kRows / 2];             // S and P, or dP and dS: [64, kRows]
  using A = uint32_t[kRows / 4];          // P or dS, rounded
  using Sums = float[Role::kSumDim / 2];  // dV or dK: [64, kSumDim]
  using Place = RingPlace<Role::kStages>;
  using SumPlace = RingPlace<Role::kSumStages>;
  static constexpr bool kPaired = Config::kCluster == 2;

  // A consumer has dQ's columns in two parts, neither of which reaches from one
  // panel of K into another: the first or the last 64, and half of those
  // between. In a cluster it has one part, a panel.
  static constexpr int kParts[] = {64, (Config::kDqDim - 128) / 2};
  static constexpr int kPartAt[] = {Role::kNumber * (Config::kDqDim - 64),
                                    64 + Role::kNumber* kParts[1]};
  // Parts of one size are in the same registers, one after the other.
  static constexpr bool kAlike = kPaired || kParts[0] == kParts[1];
  using DQ = float[kAlike ? 1 : 2][kParts[0] / 2];
  template <int kPart>
  __device__ static auto& Part(DQ& d_q) {
    return reinterpret_cast<float(&)[kParts[kPart] / 2]>(
        d_q[kAlike ? 0 : kPart]);
  }

  // Works on the block's tiles of rows. dQ of a tile is computed and added with
  // the next tile, and that of the last one by Finish.
  __device__ void Loop(uint32_t tiles, Sums& sums) {
    uint32_t i = end_;
    end_ += tiles;
    S s;
    StartScores(i, s);
    ptx::WgmmaWait<0>();
    TakeScores(i, s);
    {
      A a;
      role_.Transform(i, s, a);
      StartSums(i, a, sums);
      StartScores(i + 1, s);
      ptx::WgmmaWait<0>();
      ptx::Pin(sums);
      ptx::Pin(a);
      TakeScores(i + 1, s);
      WarpArrives(role_.sum_ring().empty[SumPlace(i).index()]);
    }
#pragma unroll 1
    for (++i; i != end_; ++i) {
      if constexpr (kPaired) {
        PairedStep(i, s, sums);
      } else {
        Step(i, s, sums);
      }
    }
    Finish(i - 1);
  }

  // Works on tile i, whose scores are there, and on dQ of the tile before.
  __device__ void Step(uint32_t i, S& s, Sums& sums) {
    const RowTile& before = shared_.tiles[(i - 1) % Config::kTiles];
    A a;
    DQ d_q;
    StartDq<0>(i - 1, d_q);
    role_.Transform(i, s, a);
    StartSums(i, a, sums);
    ptx::WgmmaWait<1>();  // for the first part of dQ
    ptx::Pin(Part<0>(d_q));
    TakeTurn(i - 1);
    Add<0>(before, d_q);
    StartDq<1>(i - 1, d_q);
    StartScores(i + 1, s);
    ptx::WgmmaWait<1>();  // for the sums, and the second part of dQ
    ptx::Pin(sums);
    ptx::Pin(a);
    ptx::Pin(Part<1>(d_q));
    LeaveDs(i - 1);
    WarpArrives(role_.sum_ring().empty[SumPlace(i).index()]);
    Add<1>(before, d_q);
    LeaveTurn(i - 1);
    ptx::WgmmaWait<0>();  // for the next scores
    TakeScores(i + 1, s);
  }

  // The same step where the blocks of a cluster compute dQ together.
  __device__ void PairedStep(uint32_t i, S& s, Sums& sums) {
    A a;
    DQ d_q;
    StartDq<0>(i - 1, d_q);
    role_.Transform(i, s, a);
    StartSums(i, a, sums);
    if constexpr (Role::kNumber == 0) {
      StartScores(i + 1, s);
      ptx::WgmmaWait<1>();  // for dQ and the sums
      ptx::Pin(Part<0>(d_q));
      ptx::Pin(sums);
      ptx::Pin(a);
      WarpArrives(role_.sum_ring().empty[SumPlace(i).index()]);
      LeaveDs(i - 1);
      AddInTurn(i - 1, d_q);
    } else {
      ptx::WgmmaWait<1>();  // for dQ
      ptx::Pin(Part<0>(d_q));
      LeaveDs(i - 1);
      AddInTurn(i - 1, d_q);
      ptx::WgmmaWait<0>();  // for the sums
      ptx::Pin(sums);
      ptx::Pin(a);
      WarpArrives(role_.sum_ring().empty[SumPlace(i).index()]);
      // These start only now, as dO of the next tile comes late: there is place
      // for one, which the other consumer has just used.
      StartScores(i + 1, s);
    }
    ptx::WgmmaWait<0>();  // for the next scores
    TakeScores(i + 1, s);
  }
  // Adds dQ of tile i, in the block's turn.
  __device__ void AddInTurn(uint32_t i, DQ& d_q) const {
    TakeTurn(i);
    Add<0>(shared_.tiles[i % Config::kTiles], d_q);
    LeaveTurn(i);
  }

  // Computes and adds dQ of the last tile.
  __device__ void Finish(uint32_t i) {
    const RowTile& last = shared_.tiles[i % Config::kTiles];
    DQ d_q;
    TakeTurn(i);
    StartDq<0>(i, d_q);
    ptx::WgmmaWait<0>();
    ptx::Pin(Part<0>(d_q));
    Add<0>(last, d_q);
    if constexpr (!kPaired) {
      StartDq<1>(i, d_q);
      ptx::WgmmaWait<0>();
      ptx::Pin(Part<1>(d_q));
      Add<1>(last, d_q);
    }
    LeaveDs(i);
    LeaveTurn(i);
  }

  // Starts (E1) or (E14) of tile i, once its rows are there. If there is no
  // such tile, it multiplies what is there, and nobody uses the result.
  __device__ void StartScores(uint32_t i, S& s) const {
    const Place place(i);
    if (i != end_)
      WaitFor(role_.row_ring().full[place.index()], place.parity());
    role_.Begin(i, s);
    StartRowsByRows<T, Role::kDepth, kCols, kRows, Role::kSubtract>(
        Tile(role_.columns()), Tile(role_.rows(place.index())), s);
  }
  // Once the scores are there: lets go of what the role needs no more.
  __device__ void TakeScores(uint32_t i, S& s) const {
    ptx::Pin(s);
    if (i != end_) role_.LeaveRows(i);
  }
  // Starts (E13) or (E18) of tile i, once the rows of dO or Q are there.
  __device__ void StartSums(uint32_t i, A& a, Sums& sums) const {
    const SumPlace place(i);
    WaitFor(role_.sum_ring().full[place.index()], place.parity());
    StartAddToColumns<T, kRows, Role::kSumDim>(
        a, Tile(role_.sum_rows(place.index())), sums);
  }
  // Starts a part of (E17) of tile i, once all of dS is there.
  template <int kPart>
  __device__ void StartDq(uint32_t i, DQ& d_q) const {
    const RingPlace<2> place(i);
    if (kPart == 0)
      WaitFor(shared_.exchange.ds_ring.full[place.index()], place.parity());
    if constexpr (kPaired) {
      WaitFor(shared_.exchange.other_ds_full[place.index()], place.parity());
      StartRowsByColumns<T, kCols, kRows, kParts[kPart]>(
          Tile(shared_.d_s[place.index()]),
          Tile(shared_.k) + PairedColumn() / 64 * kCols * 128,
          Tile(shared_.other_ds[place.index()]),
          Tile(shared_.other_k) + Role::kNumber * kCols * 128,
          Part<kPart>(d_q));
    } else {
      constexpr int kColumn = kPartAt[kPart];
      StartRowsByColumns<T, kCols, kRows, kParts[kPart]>(
          Tile(shared_.d_s[place.index()]),
          Tile(shared_.k) + kColumn / 64 * kCols * 128 + kColumn % 64 * 2,
          Part<kPart>(d_q));
    }
  }
  // Adds a part of dQ to the sums.
  template <int kPart>
  __device__ void Add(const RowTile& tile, DQ& d_q) const {
    if constexpr (kPaired) {
      AddToSums<Config>(tile, 0, PairedColumn(), Part<kPart>(d_q));
    } else {
      AddToSums<Config>(tile, 0, kPartAt[kPart], Part<kPart>(d_q));
    }
  }
  // The first of dQ's columns that this consumer has, in a cluster.
  __device__ static int PairedColumn() {
    return 64 * (Config::kOtherPanels * ptx::ClusterRank() + Role::kNumber);
  }
  // Tells those who write dS, of this block and of the cluster's other, that
  // this warp has read it.
  __device__ void LeaveDs(uint32_t i) const {
    uint64_t& empty = shared_.exchange.ds_ring.empty[i % 2];
    WarpArrives(empty);
    if constexpr (kPaired) {
      if (threadIdx.x % 32 == 0) {
        ptx::BarrierArriveCluster(ptx::ClusterAddress(
            ptx::SharedAddress(&empty), ptx::ClusterRank() ^ 1));
      }
    }
  }

  // The address by which a product finds a tile. In a cluster, addresses also
  // say which block's it is, for which descriptors have no bits.
  __device__ static uint32_t Tile(const std::byte* tile) {
    const uint32_t address = ptx::SharedAddress(tile);
    return kPaired ? address & 0x3ffff : address;
  }
  __device__ static void WaitFor(uint64_t& barrier, uint32_t parity) {
    ptx::BarrierWait(ptx::SharedAddress(&barrier), parity);
  }
  // Waits until it is the block's turn to add dQ of tile i, if blocks take
  // turns.
  __device__ void TakeTurn(uint32_t i) const {
    if (!in_turns_) [[likely]]
      return;
    const RingPlace<Config::kStages> place(i);
    WaitFor(shared_.turns.taken[place.index()], place.parity());
  }
  // Says that this warp has added its part in that turn.
  __device__ void LeaveTurn(uint32_t i) const {
    if (!in_turns_) [[likely]]
      return;
    WarpArrives(shared_.turns.added[i % Config::kStages]);
  }

  BackwardShared<Config>& shared_;
  Role role_;
  const bool in_turns_;
  uint32_t end_ = 0;  // one past the block's tiles, counted over all blocks
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_WIDE_CONSUMER_CUH_
