#ifndef ATTND_KERNELS_CUDA_SM90_PLANNING_CUH_
#define ATTND_KERNELS_CUDA_SM90_PLANNING_CUH_

// What a planner does whatever its tiles are: it fills slots with them in turn,
// and gives out again those whose scores have overflowed.

#include <cstdint>

#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/ring.cuh"
#include "kernels/cuda/sm90/scheduler.cuh"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/stagger.cuh"

namespace attnd::cuda::sm90 {

enum class SlotKind : uint8_t {
  kFast,   // a tile whose scores are plain, see ScoreRule
  kSlow,   // a tile whose scores are not, or have overflowed when it was kFast
  kEmpty,  // a tile whose rows see nothing: no Q, K and V are loaded
  kDrain,  // no tile; what comes next depends on whether tiles overflow
  kEnd,    // no tile, and no slot comes after it
};

// What a planner keeps for itself. It is in shared memory because the planner
// has few registers.
template <int kSlots>
struct PlanningState {
  uint32_t redo[kSlots];  // tiles that are to be done again, see TileScheduler
  uint32_t run_end;  // how many of the launch's tiles come before run's end
  TileRun run;       // the run that the last tile was in
};

// For one warp, the planner. Shared has these members, [kSlots] but the last:
//
//   member               written, or arrived at, by    read, or awaited, by
//   slots.kind           planner                       consumers, planner
//   slots.tile           planner                       planner
//   slots.overflowed     planner; then consumers       planner, consumers
//   load_slots.kind      planner                       loaders
//   known                planner, before slot_ring     loaders
//   slot_ring.full       planner                       consumers
//   slot_ring.empty      loaders, consumers' warps     planner
//   claims               loader: tile nearly loaded    planner
//   planning             planner                       planner
template <class Shared, int kSlots>
class Planning {
 public:
  __device__ Planning(const LaunchParams& params, Shared& shared)
      : params_(params),
        shared_(shared),
        blob_(BlobOf(params)),
        scheduler_(params, shared.planning.redo),
        lane_(threadIdx.x % 32) {
    if (lane_ == 0) {
      shared.planning.run = params.first_run;
      // Where there are several runs, 0 makes Run look for the first tile's.
      shared.planning.run_end = params.num_runs == 1 ? params.num_tiles : 0;
    }
    __syncwarp();  // all see the run
  }

  // Fills slots until there are no more tiles. `open(slot, tile, again)` writes
  // a tile to a slot, calls TellLoaders as soon as loaders can begin, and
  // returns whether the tile is short; `again` says that it is done once more.
  // A tile is taken as late as possible, since another block might begin with
  // it sooner: when the tile before it is nearly loaded or, if that is short,
  // the one before that.
  template <class Open>
  __device__ void Run(const Open& open) {
    while (true) {
      if (filled_.count() - retired_.count() == kSlots) Retire();
      const int64_t tile = scheduler_.Next();
      const int slot = filled_.index();
      if (tile >= 0) {
        if (tile < state().run.first_tile ||
            tile - params_.first_tile >= state().run_end) {
          FindRun(tile);
        }
        const bool is_short = open(slot, tile, scheduler_.again());
        Stagger();
        Publish();
        WaitForClaim(is_short ? 2 : 1);
        continue;
      }
      // Tiles that are still worked on may have to be done again.
      Publish(SlotKind::kDrain);
      while (retired_.count() != filled_.count()) Retire();
      if (!scheduler_.HasMore()) break;
    }
    Publish(SlotKind::kEnd);
  }

  // Returns what `tile` is. Copies its problem's description to `description`,
  // unless that is `described`, the one whose description is there already.
  __device__ OpenTile Open(int64_t tile, BlobOffset& described,
                           TileDescription& description) const {
    if (described != state().run.problem) {
      Describe(blob_, state().run, description);
      if (lane_ == 0) described = state().run.problem;
    }
    return MakeOpenTile(blob_, state().run, tile, description);
  }
  // Tells loaders that a LoadSlot is written. For the lane that has written it.
  __device__ void TellLoaders(int slot) const {
    ptx::BarrierArrive(ptx::SharedAddress(&shared_.known[slot]));
  }
  __device__ const std::byte* blob() const { return blob_; }

 private:
  __device__ PlanningState<kSlots>& state() const { return shared_.planning; }

  // Makes `run` the run that a tile is in.
  __device__ void FindRun(int64_t tile) {
    const TileRun* runs = At<TileRun>(blob_, params_.runs);
    const int n = cuda::FindRun(runs, params_.num_runs, tile);
    __syncwarp();  // all have left the last run
    if (lane_ == 0) {
      state().run = runs[n];
      state().run_end = params_.num_tiles;
      if (n + 1 < params_.num_runs) {
        state().run_end = static_cast<uint32_t>(
            min(runs[n + 1].first_tile - params_.first_tile,
                int64_t{params_.num_tiles}));
      }
    }
    __syncwarp();  // all see the run
  }

  // Waits until all have left the oldest slot that is not retired, and notes
  // its tile if it has overflowed.
  __device__ void Retire() {
    const int i = retired_.index();
    ptx::BarrierWait(ptx::SharedAddress(&shared_.slot_ring.empty[i]),
                     retired_.parity());
    const auto& slot = shared_.slots[i];
    if (slot.kind == SlotKind::kFast && slot.overflowed) {
      scheduler_.Again(slot.tile);
    }
    __syncwarp();  // all have read the slot
    retired_.Next();
  }
  // Tells consumers that the next slot is written.
  __device__ void Publish() {
    __syncwarp();  // the slot is written
    if (lane_ == 0) {
      ptx::BarrierArrive(
          ptx::SharedAddress(&shared_.slot_ring.full[filled_.index()]));
    }
    filled_.Next();
  }
  // Fills the next slot with what is no tile, and tells all of it.
  __device__ void Publish(SlotKind kind) {
    const int slot = filled_.index();
    if (lane_ == 0) {
      shared_.slots[slot].kind = shared_.load_slots[slot].kind = kind;
      TellLoaders(slot);
    }
    Publish();
  }
  // Waits until the loader has claimed the tile that was published `ago` slots
  // before the next one: 1 is the last.
  __device__ void WaitForClaim(uint32_t ago) const {
    if (filled_.count() < ago) return;
    const RingPlace<kSlots> place(filled_.count() - ago);
    ptx::BarrierWait(ptx::SharedAddress(&shared_.claims[place.index()]),
                     place.parity());
  }

  const LaunchParams& params_;
  Shared& shared_;
  const std::byte* const blob_;
  TileScheduler scheduler_;
  const int lane_;
  RingPlace<kSlots> filled_, retired_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_PLANNING_CUH_
