#ifndef ATTND_KERNELS_CUDA_SM90_ROWS_LOADER_CUH_
#define ATTND_KERNELS_CUDA_SM90_ROWS_LOADER_CUH_

// The rows' loader: one warp, which brings Q to shared memory, each consumer's
// rows as soon as there is room for them, and what rows are merged with to the
// L2 cache. It is a warp of its own so that neither planner nor loader waits
// for that room.

#include <cstdint>

#include "kernels/cuda/sm90/load.cuh"
#include "kernels/cuda/sm90/ring.cuh"
#include "kernels/cuda/sm90/shared.cuh"
#include "kernels/cuda/tile/stagger.cuh"

namespace attnd::cuda::sm90 {

template <class Config>
class RowsLoader {
 public:
  __device__ explicit RowsLoader(Shared<Config>& shared)
      : shared_(shared), lane_(threadIdx.x % 32) {}

  __device__ void Run() {
    while (true) {
      const int i = slot_.index();
      ptx::BarrierWait(ptx::SharedAddress(&shared_.known[i]), slot_.parity());
      FetchState();
      const LoadSlot& tile = shared_.load_slots[i];
      if (tile.kind == SlotKind::kEnd) break;
      slot_.Next();
      if (tile.kind == SlotKind::kFast || tile.kind == SlotKind::kSlow) {
        Load(tile);
        if (tile.description.problem.before != 0) {
          merging_slot_ = i;
          continue;
        }
      }
      LeaveSlot(i);
    }
  }

 private:
  // Has what the last tile is merged with brought to the L2 cache, if that is
  // still to be done, and leaves that tile's slot. The tile after it becomes
  // known when it is nearly loaded, and so will end soon: brought earlier, its
  // state would make way for K and V.
  __device__ void FetchState() {
    if (merging_slot_ < 0) return;
    PrefetchState(shared_.load_slots[merging_slot_], lane_);
    LeaveSlot(merging_slot_);
    merging_slot_ = -1;
  }
  __device__ void LeaveSlot(int i) const {
    WarpArrives(shared_.slot_ring.empty[i], lane_);
  }

  __device__ void Load(const LoadSlot& tile) {
    AcquireMap(tile, kMapQ, lane_);
#pragma unroll 1
    for (int n = 0; n < Config::kConsumers; ++n) {
      // Rows that can be loaded now need not be brought to the L2 cache first.
      if (!HasRoom(n)) PrefetchQ<Config>(tile, n, lane_);
    }
    Stagger();
    const int i = q_.index();
#pragma unroll 1
    for (int n = 0; n < Config::kConsumers; ++n) {
      auto& ring = shared_.q_rings[n];
      const ConsumerRows rows(tile, n);
      const Box box{tile.maps + kMapQ, rows.first, tile.head, tile.b};
      ptx::BarrierWait(ptx::SharedAddress(&ring.empty[i]), q_.parity() ^ 1);
      LoadQ<Config>(tile, rows, box, ptx::SharedAddress(shared_.q[i][n]),
                    ptx::SharedAddress(&ring.full[i]), lane_);
    }
    q_.Next();
  }

  // Whether a consumer's next buffer is free.
  __device__ bool HasRoom(int consumer) const {
    return ptx::BarrierTest(
        ptx::SharedAddress(&shared_.q_rings[consumer].empty[q_.index()]),
        q_.parity() ^ 1);
  }

  Shared<Config>& shared_;
  const int lane_;
  int merging_slot_ = -1;  // the slot whose state is to be fetched; -1: none
  RingPlace<Config::kQBuffers> q_;
  RingPlace<Config::kSlots> slot_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_ROWS_LOADER_CUH_
