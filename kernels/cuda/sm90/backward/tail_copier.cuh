#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_TAIL_COPIER_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_TAIL_COPIER_CUH_

// The tail copiers: producers that copy tiles in which a sequence ends before
// its tensor does, so that padding is never read. The copy engine brings all
// other tiles (loader.cuh). They are two warps, as their threads have few
// registers.

#include <cstdint>

#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/sm90/backward/block_walk.cuh"
#include "kernels/cuda/sm90/backward/copy_rows.cuh"
#include "kernels/cuda/sm90/backward/row_walk.cuh"
#include "kernels/cuda/sm90/ring.cuh"
#include "kernels/cuda/sm90/wgmma.cuh"
#include "kernels/cuda/tile/stagger.cuh"

namespace attnd::cuda::sm90 {

// What both do. They arrive at every tile's full, whether they had to copy the
// tile or not.
template <class Config>
class TailCopier {
 protected:
  static constexpr int kRows = Config::kRows, kCols = Config::kCols;

  __device__ explicit TailCopier(BackwardShared<Config>& shared)
      : shared_(shared), blocks_(shared), lane_(threadIdx.x % 32) {}

  // Calls act(block), which copies what there is to copy, for all blocks of
  // columns.
  template <class Act>
  __device__ void ForEachBlock(const Act& act) {
    while (const ColumnBlock* block = blocks_.Next()) {
      // Wait until consumers have left the columns of the block before.
      ptx::BarrierWait(ptx::SharedAddress(&shared_.columns_empty),
                       blocks_.parity() ^ 1);
      act(*block);
      blocks_.LeaveTogether();
    }
  }

  // Waits until consumers have left what was in this slot of the ring before.
  template <int kCount>
  __device__ static void Wait(Ring<kCount>& ring,
                              const RingPlace<kCount>& place) {
    ptx::BarrierWait(ptx::SharedAddress(&ring.empty[place.index()]),
                     place.parity() ^ 1);
    Stagger();
  }

  // Columns of K or V, [kCols, 64 kPanels], with their dims from `first_dim`
  // on.
  template <int kPanels>
  __device__ void PutColumns(const ColumnBlock& block,
                             const ConstTensorView& view,
                             const Columns& columns, int first_dim, int dim,
                             std::byte* to, uint64_t& full) const {
    if (columns.cut()) {
      Copy<kPanels, kCols>(view, block.b, block.kv_head, columns.first,
                           first_dim, columns.valid, dim, to);
    }
    WarpArrives(full, lane_);
  }
  // A tile of Q or dO.
  template <int kPanels>
  __device__ void PutRows(const ColumnBlock& block, const RowWalk<kRows>& walk,
                          const ConstTensorView& view, int dim, std::byte* to,
                          uint64_t& full) const {
    if (block.CutsRows(walk.row(), kRows)) {
      Copy<kPanels, kRows>(view, block.b, walk.head(), walk.row(), 0,
                           block.q_len - walk.row(), dim, to);
    }
    WarpArrives(full, lane_);
  }

  BackwardShared<Config>& shared_;
  BlockWalk<Config> blocks_;
  const int lane_;

 private:
  template <int kPanels, int kTileRows>
  __device__ void Copy(const ConstTensorView& view, int b, int head, int token,
                       int first_dim, int valid, int dim, std::byte* to) const {
    // Without this, what follows from it is kept in registers from tile to
    // tile.
    uint32_t lane = lane_;
    ptx::Pin(lane);
    const auto* from = static_cast<const uint16_t*>(view.data) + first_dim +
                       b * view.batch_stride + head * view.head_stride +
                       token * view.token_stride;
    CopyRowsAsync<kPanels, kTileRows>(ptx::SharedAddress(to), from,
                                      view.token_stride, valid, dim - first_dim,
                                      static_cast<int>(lane));
  }
};

// The tail copier of K and Q. It also writes the RowTiles, as consumers have no
// registers to find out what is in them.
template <class Config>
class Describer : TailCopier<Config> {
  using Base = TailCopier<Config>;
  using Base::shared_, Base::kRows;

 public:
  __device__ explicit Describer(BackwardShared<Config>& shared)
      : Base(shared) {}

  __device__ void Run() {
    Base::ForEachBlock([this](const ColumnBlock& block) {
      Base::template PutColumns<Config::kDimPanels>(
          block, block.k, block.columns, 0, block.head_dim, shared_.k,
          shared_.k_full);
#pragma unroll 1
      for (RowWalk<kRows> walk(block); !walk.done(block); walk.Next(block)) {
        PutTile(block, walk);
      }
    });
  }

 private:
  __device__ void PutTile(const ColumnBlock& block,
                          const RowWalk<kRows>& walk) {
    const int i = place_.index();
    uint32_t flags = 0;
    if constexpr (Config::kEarlyFlags) flags = FlagsOf(block, walk);
    Base::Wait(shared_.q_ring, place_);
    if constexpr (!Config::kEarlyFlags) flags = FlagsOf(block, walk);
    if (Base::lane_ == 0)
      Describe(block, walk, flags,
               shared_.tiles[place_.count() % Config::kTiles]);
    Base::template PutRows<Config::kDimPanels>(block, walk, block.q,
                                               block.head_dim, shared_.q[i],
                                               shared_.q_ring.full[i]);
    place_.Next();
  }
  __device__ static uint32_t FlagsOf(const ColumnBlock& block,
                                     const RowWalk<kRows>& walk) {
    const uint32_t huge = block.huge[walk.padded_row(block) / kGradientRows];
    return (block.IsClear(walk.row_block()) ? 0 : RowTile::kMasked) |
           (huge != 0 ? RowTile::kHuge : 0);
  }
  __device__ void Describe(const ColumnBlock& block, const RowWalk<kRows>& walk,
                           uint32_t flags, RowTile& tile) const {
    tile.first = walk.row();
    tile.flags = flags;
    tile.natural_lse = block.natural_lse + walk.padded_row(block);
    if constexpr (Config::kWide) {
      tile.sums = block.sums + int64_t{walk.padded_row(block)} * Config::kDqDim;
    }
  }

  RingPlace<Config::kStages> place_;
};

// The tail copier of V and dO, and of what a block of a cluster has of its
// neighbour's K.
template <class Config>
class ValueCopier : TailCopier<Config> {
  using Base = TailCopier<Config>;
  using Base::shared_, Base::kRows;

 public:
  __device__ explicit ValueCopier(BackwardShared<Config>& shared)
      : Base(shared) {}

  __device__ void Run() {
    Base::ForEachBlock([this](const ColumnBlock& block) {
      Base::template PutColumns<Config::kValuePanels>(
          block, block.v, block.columns, 0, block.value_dim, shared_.v,
          shared_.v_full);
      if constexpr (Config::kCluster == 2) {
        Base::template PutColumns<Config::kOtherPanels>(
            block, block.k, block.other,
            64 * Config::kOtherPanels * ptx::ClusterRank(), block.head_dim,
            shared_.other_k, shared_.exchange.other_k_full);
      }
#pragma unroll 1
      for (RowWalk<kRows> walk(block); !walk.done(block); walk.Next(block)) {
        PutTile(block, walk);
      }
    });
  }

 private:
  __device__ void PutTile(const ColumnBlock& block,
                          const RowWalk<kRows>& walk) {
    const int i = place_.index();
    Base::Wait(shared_.do_ring, place_);
    Base::template PutRows<Config::kValuePanels>(
        block, walk, block.d_o, block.value_dim, shared_.d_o[i],
        shared_.do_ring.full[i]);
    place_.Next();
  }

  RingPlace<Config::kDoStages> place_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_TAIL_COPIER_CUH_
