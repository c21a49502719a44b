#ifndef ATTND_KERNELS_CUDA_SM90_PLANNER_CUH_
#define ATTND_KERNELS_CUDA_SM90_PLANNER_CUH_

// The planner: one warp, which decides what the block does next. It finds out
// all there is to know of a tile of rows, and brings them to shared memory,
// while the tile before is worked on.

#include <cstdint>

#include "kernels/cuda/kernel.h"
#include "kernels/cuda/sm90/load.cuh"
#include "kernels/cuda/sm90/scheduler.cuh"
#include "kernels/cuda/sm90/shared.cuh"

namespace attnd::cuda::sm90 {

template <class Config>
class Planner {
 public:
  static constexpr int kRows = Config::kRows;

  __device__ Planner(const LaunchParams& params, Shared<Config>& shared)
      : params_(params),
        shared_(shared),
        blob_(BlobOf(params)),
        lane_(threadIdx.x % 32),
        scheduler_(params, shared.redo) {
    if (lane_ < Config::kSlots) shared.load_slots[lane_].described = 0;
    __syncwarp();  // no slot has a description
  }

  __device__ void Run() {
    while (true) {
      TakeSlot();
      const int64_t tile = scheduler_.Next();
      if (tile >= 0) {
        Open(tile);
        Fill(tile);
        const LoadSlot& opened = shared_.load_slots[filled_.index()];
        Publish();
        if (opened.first.valid()) LoadRows(opened);
        WaitForClaim();
        continue;
      }
      // What is not over yet may have to be done again.
      Publish(SlotKind::kDrain);
      WaitForClaim();
      while (retired_.count() != filled_.count()) Retire();
      if (!scheduler_.HasMore()) break;
    }
    Publish(SlotKind::kEnd);
  }

 private:
  // Waits until the next slot is free.
  __device__ void TakeSlot() {
    if (filled_.count() - retired_.count() == Config::kSlots) Retire();
  }
  // Waits until the oldest slot is done with.
  __device__ void Retire() {
    const int i = retired_.index();
    ptx::BarrierWait(ptx::SharedAddress(&shared_.slot_ring.empty[i]),
                     retired_.parity());
    const TileSlot& slot = shared_.slots[i];
    if (slot.kind == SlotKind::kFast && slot.overflowed) {
      scheduler_.Again(slot.tile);
    }
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
    if (lane_ == 0) shared_.slots[filled_.index()].kind = kind;
    Publish();
  }
  // Brings the rows of a tile as soon as there is room for them.
  __device__ void LoadRows(const LoadSlot& tile) {
    AcquireMap(tile, kMapQ, lane_);
    PrefetchQ<Config>(tile, lane_);
    const int i = q_.index();
    ptx::BarrierWait(ptx::SharedAddress(&shared_.q_ring.empty[i]),
                     q_.parity() ^ 1);
    LoadQ<Config>(tile, ptx::SharedAddress(shared_.q[i]),
                  ptx::SharedAddress(&shared_.q_ring.full[i]), lane_);
    q_.Next();
  }
  // Waits until the loader wants to know of one more tile.
  __device__ void WaitForClaim() {
    ptx::BarrierWait(ptx::SharedAddress(&shared_.claim), claim_.parity());
    claim_.Next();
  }

  // Finds the run that tile `index` is in.
  __device__ void FindRun(int64_t index) {
    const TileRun* runs = At<TileRun>(blob_, params_.runs);
    const int n = cuda::FindRun(runs, params_.num_runs, index);
    run_ = runs[n];
    run_end_ = n + 1 < params_.num_runs
                   ? runs[n + 1].first_tile
                   : params_.first_tile + params_.num_tiles;
  }

  // Finds out what the tile of rows is.
  __device__ void Open(int64_t index) {
    LoadSlot& tile = shared_.load_slots[filled_.index()];
    if (index < run_.first_tile || index >= run_end_) FindRun(index);
    if (tile.described != run_.problem) {
      Describe<WarpTeam>(blob_, run_, tile.description);
    }
    const OpenTile open = MakeOpenTile(blob_, run_, index, tile.description);
    const TilePlace place = PlaceOf(open);
    const Sequence sequence = open.sequence(blob_, place.b);
    const int64_t first_row = int64_t{place.row_block} * kRows;
    const int valid =
        IsDecode(sequence.q_len) ? 0 : Within(sequence.q_len, first_row);
    if (lane_ == 0) {
      tile.sequence = sequence;
      tile.place = place;
      tile.described = run_.problem;
      tile.maps = At<CUtensorMap>(blob_, open.maps);
      tile.copied = params_.blob != nullptr;
      tile.first_row = first_row;
      tile.valid = valid;
      tile.last_row = first_row + valid - 1;
      tile.first = {};
      if (valid > 0) {
        tile.first = EnterSegment<Config::kCols>(-1, tile.sequence, first_row,
                                                 tile.last_row);
      }
    }
    __syncwarp();  // all have the tile
  }
  // Rows of the tile that are before `row`.
  __device__ static int Within(int64_t row, int64_t first_row) {
    return static_cast<int>(
        min(max(row - first_row, int64_t{0}), int64_t{kRows}));
  }

  __device__ void Fill(int64_t index) {
    if (lane_ != 0) return;
    const LoadSlot& tile = shared_.load_slots[filled_.index()];
    const DeviceProblem& p = tile.description.problem;
    TileSlot& slot = shared_.slots[filled_.index()];
    slot.tile = index;
    slot.rule = MakeScoreRule(p, tile.place.b, tile.place.head);
    const bool plain = slot.rule.plain() && !scheduler_.again();
    slot.kind = !tile.first.valid() ? SlotKind::kEmpty
                : plain             ? SlotKind::kFast
                                    : SlotKind::kSlow;
    slot.factor = slot.rule.factor(plain);
    slot.overflowed = false;
    slot.valid = tile.valid;
    // What decode has done is left alone, but not what pads it.
    slot.first_stored =
        IsDecode(tile.sequence.q_len) ? Within(kDecodeRows, tile.first_row) : 0;
    slot.end_stored = Within(p.q_len, tile.first_row);
    slot.first_row = tile.first_row;
    slot.value_dim = p.value_dim;
    slot.o_dtype = p.o.dtype;
    slot.o_stride = p.o.token_stride;
    slot.o = nullptr;
    if (p.o.data != nullptr) {
      const int64_t at = tile.place.b * p.o.batch_stride +
                         tile.place.head * p.o.head_stride +
                         tile.first_row * p.o.token_stride;
      slot.o = static_cast<std::byte*>(p.o.data) +
               at * (p.o.dtype == DType::kF32 ? 4 : 2);
    }
    slot.lse = nullptr;
    if (p.lse.data != nullptr) {
      slot.lse = p.lse.data + tile.place.b * p.lse.batch_stride +
                 tile.place.head * p.lse.head_stride + tile.first_row;
    }
  }

  const LaunchParams& params_;
  Shared<Config>& shared_;
  const std::byte* const blob_;
  const int lane_;
  TileScheduler scheduler_;
  TileRun run_;  // of the last tile
  int64_t run_end_ = 0;
  RingPlace<Config::kSlots> filled_, retired_;
  RingPlace<1> claim_;
  RingPlace<Config::kQBuffers> q_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_PLANNER_CUH_
