#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_LOADER_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_LOADER_CUH_

// The loader: one thread, which decides what the block of threads does next,
// and has the copy engine bring tiles to shared memory. Where a sequence ends
// before its tensor does, the copy engine would read padding: other producers
// copy that tile (tail_copier.cuh).

#include <cstdint>

#include "kernels/cuda/sm90/backward/row_walk.cuh"
#include "kernels/cuda/sm90/backward/shared.cuh"
#include "kernels/cuda/sm90/backward/tensor_maps.h"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/sequence.h"
#include "kernels/cuda/tile/stagger.cuh"

namespace attnd::cuda::sm90 {

template <class Config>
class BackwardLoader {
 public:
  static constexpr int kRows = Config::kRows, kCols = Config::kCols;

  __device__ BackwardLoader(BackwardShared<Config>& shared,
                            const LaunchParams& params)
      : shared_(shared), params_(params) {}

  // Opens blocks of columns, and loads their tiles, until there are no more.
  __device__ void Run() {
    while (OpenBlock()) {
      const ColumnBlock& block = shared_.slots[slot_.index()].block;
      // Wait until consumers have left the columns of the block before.
      ptx::BarrierWait(ptx::SharedAddress(&shared_.columns_empty),
                       slot_.count() % 2 ^ 1);
      if (block.tiles() > 0) {
        Load(block);
      } else {
        SkipColumns();
      }
      slot_.Next();
    }
  }

 private:
  // Brings the next tile of the launch to the next slot, and waits for it.
  // Returns false, and says so in the slot, if there is none.
  __device__ bool OpenBlock() {
    const int i = slot_.index();
    ColumnSlot& slot = shared_.slots[i];
    const uint32_t full = ptx::SharedAddress(&shared_.slot_ring.full[i]);
    ptx::BarrierWait(ptx::SharedAddress(&shared_.slot_ring.empty[i]),
                     slot_.parity() ^ 1);
    const uint32_t ticket = TakeTicket();
    if (ticket >= params_.num_tiles) {
      slot.over = true;
      ptx::BarrierArrive(full);
      return false;
    }
    const int64_t plan =
        (params_.first_tile + ticket) * Config::kCluster + Rank();
    ptx::BarrierArriveExpect(full, sizeof(ColumnBlock));
    ptx::BulkLoad(ptx::SharedAddress(&slot.block), PlansOf(params_) + plan,
                  sizeof(ColumnBlock), full);
    ptx::BarrierWait(full, slot_.parity());
    return true;
  }
  __device__ static uint32_t Rank() {
    return Config::kCluster == 1 ? 0 : ptx::ClusterRank();
  }

  // Takes the number of the next tile, or one from num_tiles on if there is
  // none. Clusters take them from a counter until each has had one too many,
  // after which it is 0 again. Both blocks of a cluster get the same.
  __device__ uint32_t TakeTicket() {
    const uint32_t clusters = gridDim.x / Config::kCluster;
    const auto take = [&] {
      return cuda::ptx::AtomicIncrement(params_.counters,
                                        params_.num_tiles + clusters - 1);
    };
    if constexpr (Config::kCluster == 1) {
      return take();
    } else {
      auto& [ticket, ring] = shared_.tickets;
      const uint32_t full = ptx::SharedAddress(ring.full),
                     empty = ptx::SharedAddress(ring.empty);
      uint32_t mine;
      if (Rank() == 0) {
        mine = take();
        ptx::BarrierWait(empty, tickets_.parity() ^ 1);
        ptx::StoreCluster(ptx::ClusterAddress(ptx::SharedAddress(&ticket), 1),
                          mine, ptx::ClusterAddress(full, 1));
      } else {
        ptx::BarrierArriveExpect(full, sizeof(ticket));
        ptx::BarrierWait(full, tickets_.parity());
        mine = ticket;
        // After the last ticket the first block may have ended.
        if (mine < params_.num_tiles)
          ptx::BarrierArriveCluster(ptx::ClusterAddress(empty, 0));
      }
      tickets_.Next();
      return mine;
    }
  }

  // For a block that no row sees: K and V count as there, but are not loaded.
  __device__ void SkipColumns() const {
    ptx::BarrierArrive(ptx::SharedAddress(&shared_.k_full));
    ptx::BarrierArrive(ptx::SharedAddress(&shared_.v_full));
    if constexpr (Config::kCluster == 2) {
      ptx::BarrierArrive(ptx::SharedAddress(&shared_.exchange.other_k_full));
    }
  }
  __device__ void Load(const ColumnBlock& block) {
    maps_ = At<CUtensorMap>(BlobOf(params_), block.maps);
    if (params_.blob != nullptr) FenceMaps(block.segment);
    RowWalk<kRows> walk(block);
    LoadColumns<Config::kDimPanels>(block, KMap(block.segment), block.columns,
                                    0, shared_.k, shared_.k_full);
    LoadQ(block, walk);
    LoadColumns<Config::kValuePanels>(block, VMap(block.segment), block.columns,
                                      0, shared_.v, shared_.v_full);
    if constexpr (Config::kCluster == 2) {
      LoadColumns<Config::kOtherPanels>(
          block, KMap(block.segment), block.other,
          Config::kOtherPanels * ptx::ClusterRank(), shared_.other_k,
          shared_.exchange.other_k_full);
    }
    while (true) {
      LoadDo(block, walk);
      place_.Next();
      walk.Next(block);
      if (walk.done(block)) break;
      LoadQ(block, walk);
    }
  }

  // For maps that lie in memory, not in the parameters.
  __device__ void FenceMaps(int segment) const {
    for (int map : {KMap(segment), VMap(segment), kMapQ, kMapDo}) {
      ptx::FenceTensorMap(maps_ + map);
    }
  }

  // Columns of K or V, `kPanels` panels of them from `first_panel` on, unless a
  // tail copier copies them.
  template <int kPanels>
  __device__ void LoadColumns(const ColumnBlock& block, int map,
                              const Columns& columns, int first_panel,
                              std::byte* to, uint64_t& full) const {
    const uint32_t barrier = ptx::SharedAddress(&full);
    if (columns.cut()) {
      ptx::BarrierArrive(barrier);
      return;
    }
    ptx::BarrierArriveExpect(barrier, kPanels * kCols * 128);
    StartTile<kPanels, kCols>(map, columns.first, block.kv_head, block.b, to,
                              barrier, first_panel);
  }

  // Rows of Q, with their LSE.
  __device__ void LoadQ(const ColumnBlock& block, const RowWalk<kRows>& walk) {
    const int i = place_.index();
    LoadRows<Config::kDimPanels>(block, walk, kMapQ, block.lse, shared_.q[i],
                                 shared_.lse[i], shared_.q_ring);
  }
  // Rows of dO, with their delta.
  __device__ void LoadDo(const ColumnBlock& block, const RowWalk<kRows>& walk) {
    const int i = RingPlace<Config::kDoStages>(place_.count()).index();
    LoadRows<Config::kValuePanels>(block, walk, kMapDo, block.delta,
                                   shared_.d_o[i], shared_.delta[i],
                                   shared_.do_ring);
  }

  // A tile of Q or dO, unless a tail copier copies it, and its rows' `values`.
  template <int kPanels, int kCount>
  __device__ void LoadRows(const ColumnBlock& block, const RowWalk<kRows>& walk,
                           int map, const float* values, std::byte* to,
                           float* values_to, Ring<kCount>& ring) const {
    constexpr uint32_t kValueBytes = kRows * sizeof(float);
    const RingPlace<kCount> place(place_.count());
    const int i = place.index();
    const bool cut = block.CutsRows(walk.row(), kRows);
    ptx::BarrierWait(ptx::SharedAddress(&ring.empty[i]), place.parity() ^ 1);
    Stagger();
    const uint32_t barrier = ptx::SharedAddress(&ring.full[i]);
    ptx::BarrierArriveExpect(barrier,
                             kValueBytes + (cut ? 0 : kPanels * kRows * 128));
    ptx::BulkLoad(ptx::SharedAddress(values_to),
                  values + walk.padded_row(block), kValueBytes, barrier);
    if (!cut)
      StartTile<kPanels, kRows>(map, walk.row(), walk.head(), block.b, to,
                                barrier);
  }

  // Has the copy engine begin with a tile, in boxes that are kMapRows high.
  template <int kPanels, int kTileRows>
  __device__ void StartTile(int map, int token, int head, int b, std::byte* to,
                            uint32_t barrier, int first_panel = 0) const {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll
      for (int row = 0; row < kTileRows; row += kMapRows) {
        ptx::TmaLoad(ptx::SharedAddress(to) + (panel * kTileRows + row) * 128,
                     maps_ + map, 64 * (first_panel + panel), token + row, head,
                     b, barrier);
      }
    }
  }

  BackwardShared<Config>& shared_;
  const LaunchParams& params_;
  const CUtensorMap* maps_ = nullptr;  // those of the problem at hand
  RingPlace<2> slot_;
  RingPlace<1> tickets_;
  RingPlace<Config::kStages> place_;  // the tile of rows to be loaded
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_LOADER_CUH_
