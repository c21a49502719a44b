#ifndef ATTND_KERNELS_CUDA_SM90_LOADER_CUH_
#define ATTND_KERNELS_CUDA_SM90_LOADER_CUH_

// The loader: one warp, which brings K and V to shared memory and says what the
// rows see of them. All that depends on lengths, masks and segments happens
// here, so that consumers need not know of it. It has few registers: what it
// knows of its tile is in shared memory.

#include <cstdint>

#include "kernels/cuda/sm90/column_walk.cuh"
#include "kernels/cuda/sm90/load.cuh"
#include "kernels/cuda/sm90/shared.cuh"

namespace attnd::cuda::sm90 {

template <class Config>
class Loader {
 public:
  static constexpr int kRows = Config::kRows, kCols = Config::kCols;

  __device__ explicit Loader(Shared<Config>& shared)
      : shared_(shared), lane_(threadIdx.x % 32) {}

  __device__ void Run() {
    while (true) {
      const int i = slot_.index();
      ptx::BarrierWait(ptx::SharedAddress(&shared_.slot_ring.full[i]),
                       slot_.parity());
      const SlotKind kind = shared_.slots[i].kind;
      if (kind == SlotKind::kEnd) break;
      if (kind == SlotKind::kFast || kind == SlotKind::kSlow) {
        tile_ = &shared_.load_slots[i];
        Load(kind == SlotKind::kSlow);
      } else {
        Claim();
      }
      __syncwarp();  // all have left the slot
      if (lane_ == 0) {
        ptx::BarrierArrive(ptx::SharedAddress(&shared_.slot_ring.empty[i]));
      }
      slot_.Next();
    }
  }

 private:
  // Loads K and V in the order in which they are used: K, the next K, V, the
  // next but one K, the next V, ...
  __device__ void Load(bool slow) {
    WalkPlace here = tile_->first;
    bool first = true, claimed = false;
    int segment = -1;
    while (true) {
      if (!claimed && IsNearEnd(here)) {
        claimed = true;
        Claim();
      }
      if (here.segment != segment) {
        segment = here.segment;
        AcquireMap(*tile_, KMap(segment), lane_);
        AcquireMap(*tile_, VMap(segment), lane_);
      }
      WalkPlace next = here;
      next.column += kCols;
      if (!next.valid()) {
        next = EnterSegment<kCols>(segment, tile_->sequence, tile_->first_row,
                                   tile_->last_row);
      }
      LoadK(here, !next.valid(), slow);
      if (!first) LoadV();
      first = false;
      if (!next.valid()) break;
      here = next;
    }
    LoadV();
    if (!claimed) Claim();
  }
  // Asks the planner for the next tile of rows: not before this one is nearly
  // loaded, or another block might take it sooner.
  __device__ void Claim() const {
    if (lane_ == 0) ptx::BarrierArrive(ptx::SharedAddress(&shared_.claim));
  }
  __device__ bool IsNearEnd(const WalkPlace& place) const {
    constexpr uint32_t kTiles = 4;
    return place.segment + 1 == tile_->description.problem.num_segments &&
           place.end - place.column <= kTiles * kCols;
  }

  __device__ void LoadK(const WalkPlace& place, bool last, bool slow) {
    const int i = k_.index();
    const uint32_t to = ptx::SharedAddress(shared_.k[i]);
    const uint32_t full = ptx::SharedAddress(&shared_.k_ring.full[i]);
    const bool padded = place.column + kCols > place.padding;
    ptx::BarrierWait(ptx::SharedAddress(&shared_.k_ring.empty[i]),
                     k_.parity() ^ 1);
    if (padded) {
      CopyColumns<Config::kDimPanels, kCols>(
          *tile_, place.segment, place.column,
          tile_->sequence.segment(place.segment).k,
          tile_->description.problem.head_dim, to, lane_);
    } else if (lane_ == 0) {
      StartBox<Config::kDimPanels, kCols>(
          tile_->maps + KMap(place.segment), to, static_cast<int>(place.column),
          tile_->place.kv_head, tile_->place.b, full);
    }
    Describe(shared_.columns[i], place, last, padded, slow);
    __syncwarp();  // the description is written
    if (lane_ == 0) Announce(full, padded ? 0 : Config::kKBytes);
    k_.Next();
  }
  // Of the oldest tile of columns whose K has been loaded alone.
  __device__ void LoadV() {
    const int i = v_.index();
    const ColumnTile<kRows>& columns = shared_.columns[i];
    const uint32_t to = ptx::SharedAddress(shared_.v[i]);
    const uint32_t full = ptx::SharedAddress(&shared_.v_ring.full[i]);
    ptx::BarrierWait(ptx::SharedAddress(&shared_.v_ring.empty[i]),
                     v_.parity() ^ 1);
    if (columns.padded) {
      CopyColumns<Config::kValuePanels, kCols>(
          *tile_, columns.segment, columns.column,
          tile_->sequence.segment(columns.segment).v,
          tile_->description.problem.value_dim, to, lane_);
      if (lane_ == 0) Announce(full, 0);
    } else if (lane_ == 0) {
      Announce(full, Config::kVBytes);
      StartBox<Config::kValuePanels, kCols>(
          tile_->maps + VMap(columns.segment), to,
          static_cast<int>(columns.column), tile_->place.kv_head,
          tile_->place.b, full);
    }
    v_.Next();
  }
  // That a tile is there, but for `bytes` that the copy engine brings.
  __device__ static void Announce(uint32_t full, uint32_t bytes) {
    if (bytes == 0) {
      ptx::BarrierArrive(full);
    } else {
      ptx::BarrierArriveExpect(full, bytes);
    }
  }

  // Says what the rows see of a tile of columns.
  __device__ void Describe(ColumnTile<kRows>& tile, const WalkPlace& place,
                           bool last, bool padded, bool slow) const {
    const bool masked =
        place.column < place.all_lo || place.column + kCols > place.all_hi;
    if (lane_ == 0) {
      tile.last = last;
      tile.masked = masked;
      tile.padded = padded;
      tile.segment = place.segment;
      tile.column = place.column;
      if (slow) {
        tile.bias_column =
            tile_->sequence.segment(place.segment).bias_column + place.column;
      }
    }
    if (!masked) return;
    const RowIntervals rows = tile_->sequence.Intervals(place.segment);
    const auto within = [&](int64_t column) {
      return static_cast<uint32_t>(
          min(max(column - place.column, int64_t{0}), int64_t{kCols}));
    };
#pragma unroll 1
    for (int i = lane_; i < kRows; i += 32) {
      uint32_t seen = 0;
      if (i < tile_->valid) {
        const Interval columns = rows.Row(tile_->first_row + i);
        seen = within(columns.lo) | within(columns.hi) << 16;
      }
      tile.seen[i] = seen;
    }
  }

  Shared<Config>& shared_;
  const int lane_;
  const LoadSlot* tile_ = nullptr;
  RingPlace<Config::kStages> k_, v_;
  RingPlace<Config::kSlots> slot_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_LOADER_CUH_
