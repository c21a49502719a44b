#ifndef ATTND_KERNELS_CUDA_SM90_PLANNING_CUH_
#define ATTND_KERNELS_CUDA_SM90_PLANNING_CUH_

// What a planner does whatever its tiles are: slots are filled with them in
// turn, and those whose scores have overflowed are given out again.

#include <cstdint>

#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/ring.cuh"
#include "kernels/cuda/sm90/scheduler.cuh"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/stagger.cuh"

namespace attnd::cuda::sm90 {

enum class SlotKind : uint8_t {
  kFast,   // a tile whose scores are plain, see ScoreRule
  kSlow,   // one whose scores are not
  kEmpty,  // one whose rows see nothing: no K and V come for it
  kDrain,  // no tile; the next may depend on what comes of those before
  kEnd,    // no tile, and none comes any more
};

// What a planner keeps, in shared memory; it has few registers.
template <int kSlots>
struct PlanningState {
  uint32_t redo[kSlots];  // tiles that are to be done again, see TileScheduler
  uint32_t run_end;       // the launch's tiles that come before the next run's
  TileRun run;            // that the last tile was in
};

// For one warp. Shared has `slots`, each with kind, overflowed and tile, and
// `load_slots`, with kind; `slot_ring`, and `known`, by which loaders know
// of a slot sooner; `claims`, by which a loader says of a slot's tile that it
// is nearly loaded; `planning`.
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
      // Where there are others, the run of a tile is looked for.
      shared.planning.run_end = params.num_runs == 1 ? params.num_tiles : 0;
    }
    __syncwarp();  // all see the run
  }

  // Fills slots until there are no more tiles. `open` fills one with a tile,
  // that may be one to be done again, tells loaders as soon as they can begin,
  // and says whether the tile is short. No tile is taken before it is needed,
  // or another block might have had it sooner: not before the last one is
  // nearly loaded, or the last but one, if it is short.
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
      // What is not over yet may have to be done again.
      Publish(SlotKind::kDrain);
      while (retired_.count() != filled_.count()) Retire();
      if (!scheduler_.HasMore()) break;
    }
    Publish(SlotKind::kEnd);
  }

  // Brings the description of the tile's problem to `description`, which has
  // that of the problem `described`, and says what the tile is.
  __device__ OpenTile Open(int64_t tile, BlobOffset& described,
                           TileDescription& description) const {
    if (described != state().run.problem) {
      Describe(blob_, state().run, description);
      if (lane_ == 0) described = state().run.problem;
    }
    return MakeOpenTile(blob_, state().run, tile, description);
  }
  // Tells loaders what a slot's tile is. For the lane that has written it.
  __device__ void TellLoaders(int slot) const {
    ptx::BarrierArrive(ptx::SharedAddress(&shared_.known[slot]));
  }
  __device__ const std::byte* blob() const { return blob_; }

 private:
  __device__ PlanningState<kSlots>& state() const { return shared_.planning; }

  // Finds the run that a tile is in.
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

  // Waits until the oldest slot is done with.
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
  __device__ void Publish() {
    __syncwarp();  // the slot is written
    if (lane_ == 0) {
      ptx::BarrierArrive(
          ptx::SharedAddress(&shared_.slot_ring.full[filled_.index()]));
    }
    filled_.Next();
  }
  __device__ void Publish(SlotKind kind) {
    const int slot = filled_.index();
    if (lane_ == 0) {
      shared_.slots[slot].kind = shared_.load_slots[slot].kind = kind;
      TellLoaders(slot);
    }
    Publish();
  }
  // Waits until the tile that was published `ago` tiles before the next one is
  // nearly loaded.
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
