#ifndef ATTND_KERNELS_CUDA_SM90_LOADER_CUH_
#define ATTND_KERNELS_CUDA_SM90_LOADER_CUH_

// The loader: one warp, which brings K and V to shared memory and says what the
// rows see of them. All that depends on lengths, masks and segments happens
// here, so that consumers need not know of it. It has few registers: what it
// knows of its tile is in shared memory.

#include <cstdint>

#include "kernels/cuda/sm90/column_walk.cuh"
#include "kernels/cuda/sm90/load.cuh"
#include "kernels/cuda/sm90/ring.cuh"
#include "kernels/cuda/sm90/shared.cuh"
#include "kernels/cuda/tile/stagger.cuh"

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
      const uint32_t full = ptx::SharedAddress(&shared_.known[i]);
      // The first K of a tile of rows comes before the last V of the one
      // before, unless the tile is not known yet.
      const bool known = ptx::BarrierTest(full, slot_.parity());
      if (!__all_sync(0xffffffff, known)) LoadLastV();
      ptx::BarrierWait(full, slot_.parity());
      const SlotKind kind = shared_.load_slots[i].kind;
      if (kind == SlotKind::kEnd) break;
      slot_.Next();
      if (kind == SlotKind::kFast || kind == SlotKind::kSlow) {
        Load(i);
        open_slot_ = i;
      } else {
        LoadLastV();
        Claim(i);
        LeaveSlot(i);
      }
    }
  }

 private:
  // Loads K and V of a tile of rows in the order in which they are used:
  // K0, K1, V0, K2, V1, ...; the last V is left to LoadLastV.
  __device__ void Load(int slot) {
    LoadSlot& tile = shared_.load_slots[slot];
    WalkPlace here = tile.first;
    bool first = true, claimed = false, entered = true;
    while (true) {
      if (!claimed && IsNearEnd(tile, here)) {
        claimed = true;
        Claim(slot);
      }
      if (entered) {
        AcquireMap(tile, KMap(here.segment), lane_);
        AcquireMap(tile, VMap(here.segment), lane_);
      }
      // After the last tile of a segment the walk enters another one.
      entered = here.column + kCols >= here.end;
      if (entered) ToNextSegment(tile, here.segment);
      const bool last = entered && !tile.first.valid();
      LoadK(tile, here, last);
      if (first) {
        LoadLastV();
      } else {
        LoadV(tile);
      }
      first = false;
      if (last) break;
      here.column += kCols;
      if (entered) here = tile.first;
    }
    if (!claimed) Claim(slot);
  }
  // Moves tile.first on to where the walk enters a segment after `segment`.
  __device__ void ToNextSegment(LoadSlot& tile, int segment) const {
    __syncwarp();  // all have left the place
    if (lane_ == 0) {
      tile.first = EnterSegment<kCols>(tile.sequence, tile.first_row,
                                       tile.valid, segment);
    }
    __syncwarp();  // all see the place
  }
  // Loads the last V of the tile of rows before, if that is still to be done,
  // and leaves that tile's slot.
  __device__ void LoadLastV() {
    if (open_slot_ < 0) return;
    LoadV(shared_.load_slots[open_slot_]);
    LeaveSlot(open_slot_);
    open_slot_ = -1;
  }
  __device__ void LeaveSlot(int i) const {
    WarpArrives(shared_.slot_ring.empty[i], lane_);
  }
  // Tells the planner that the tile of rows is nearly loaded.
  __device__ void Claim(int i) const {
    if (lane_ == 0) ptx::BarrierArrive(ptx::SharedAddress(&shared_.claims[i]));
  }
  // Whether at most kTiles tiles of columns are still to be loaded.
  __device__ static bool IsNearEnd(const LoadSlot& tile,
                                   const WalkPlace& place) {
    constexpr int kTiles = 4;
    return place.segment + 1 == tile.description.problem.num_segments &&
           place.end - place.column <= kTiles * kCols;
  }

  __device__ void LoadK(const LoadSlot& tile, const WalkPlace& place,
                        bool last) {
    const int i = k_.index();
    const uint32_t to = ptx::SharedAddress(shared_.k[i]);
    const uint32_t full = ptx::SharedAddress(&shared_.k_ring.full[i]);
    const bool padded = place.column + kCols > place.padding;
    const Box box{tile.maps + KMap(place.segment), place.column, tile.kv_head,
                  tile.b};
    Stagger();
    ptx::BarrierWait(ptx::SharedAddress(&shared_.k_ring.empty[i]),
                     k_.parity() ^ 1);
    if (padded) {
      CopyColumns<Config::kDimPanels, kCols>(
          tile, place.segment, place.column,
          tile.sequence.segment(place.segment).k,
          tile.description.problem.head_dim, to, lane_);
    } else if (lane_ == 0) {
      StartBox<Config::kDimPanels, kCols>(box, to, full);
    }
    Describe(tile, place, last, padded, shared_.columns[i]);
    __syncwarp();  // the description is written
    if (lane_ == 0) Announce(full, padded ? 0 : Config::kKBytes);
    k_.Next();
  }
  // Loads V of the oldest tile of columns of which only K has been loaded.
  __device__ void LoadV(const LoadSlot& tile) {
    Stagger();
    const int i = v_.index();
    const ColumnTile<kRows>& columns = shared_.columns[i];
    const uint32_t to = ptx::SharedAddress(shared_.v[i]);
    const uint32_t full = ptx::SharedAddress(&shared_.v_ring.full[i]);
    const bool padded = columns.flags & kPadded;
    const Box box{tile.maps + VMap(columns.segment), columns.column,
                  tile.kv_head, tile.b};
    ptx::BarrierWait(ptx::SharedAddress(&shared_.v_ring.empty[i]),
                     v_.parity() ^ 1);
    if (padded) {
      CopyColumns<Config::kValuePanels, kCols>(
          tile, columns.segment, columns.column,
          tile.sequence.segment(columns.segment).v,
          tile.description.problem.value_dim, to, lane_);
      if (lane_ == 0) Announce(full, 0);
    } else if (lane_ == 0) {
      Announce(full, Config::kVBytes);
      StartBox<Config::kValuePanels, kCols>(box, to, full);
    }
    v_.Next();
  }
  // Arrives at `full`: the tile is there, but for `bytes` that the copy engine
  // still brings.
  __device__ static void Announce(uint32_t full, uint32_t bytes) {
    if (bytes == 0) {
      ptx::BarrierArrive(full);
    } else {
      ptx::BarrierArriveExpect(full, bytes);
    }
  }

  // Tells consumers what the rows see of a tile of columns.
  __device__ void Describe(const LoadSlot& tile, const WalkPlace& place,
                           bool last, bool padded,
                           ColumnTile<kRows>& columns) const {
    const bool masked =
        place.column < place.all_lo || place.column + kCols > place.all_hi;
    if (lane_ == 0) {
      columns.flags =
          (last ? kLast : 0) | (masked ? kMasked : 0) | (padded ? kPadded : 0);
      columns.segment = place.segment;
      columns.column = place.column;
      if (tile.kind == SlotKind::kSlow) {
        columns.bias_column =
            tile.sequence.segment(place.segment).bias_column + place.column;
      }
    }
    if (!masked) return;
    const auto put = [&](int row, const SeenColumns& seen) {
      static_assert(kCols < 256);
      const auto within = [&](int column) {
        return static_cast<unsigned char>(
            min(max(column - place.column, 0), kCols));
      };
      columns.seen[row] = row < tile.valid
                              ? make_uchar2(within(seen.lo), within(seen.hi))
                              : make_uchar2(0, 0);
    };
    if (place.steps & kUneven) [[unlikely]] {
#pragma unroll 1
      for (int row = lane_; row < kRows; row += 32) {
        put(row, SeenUneven(place, tile.sequence,
                            tile.first_row + min(row, tile.valid - 1)));
      }
      return;
    }
#pragma unroll 2
    for (int row = lane_; row < kRows; row += 32) put(row, SeenOf(place, row));
  }

  Shared<Config>& shared_;
  const int lane_;
  int open_slot_ = -1;  // the slot whose last V is to be loaded; -1: none
  RingPlace<Config::kStages> k_, v_;
  RingPlace<Config::kSlots> slot_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_LOADER_CUH_
