#ifndef ATTND_KERNELS_CUDA_SM90_PLANNER_CUH_
#define ATTND_KERNELS_CUDA_SM90_PLANNER_CUH_

// The planner: one warp, which decides what the block does next, and finds out
// all there is to know of a tile of rows while the one before is worked on.

#include <cstdint>

#include "kernels/cuda/kernel.h"
#include "kernels/cuda/row.cuh"
#include "kernels/cuda/sm90/planning.cuh"
#include "kernels/cuda/sm90/shared.cuh"

namespace attnd::cuda::sm90 {

template <class Config>
class Planner {
 public:
  static constexpr int kRows = Config::kRows;

  __device__ Planner(const LaunchParams& params, Shared<Config>& shared)
      : copied_(params.blob != nullptr),
        shared_(shared),
        lane_(threadIdx.x % 32),
        planning_(params, shared) {
    if (lane_ < Config::kSlots) shared.load_slots[lane_].described = 0;
    __syncwarp();  // no slot has a description
  }

  __device__ void Run() {
    planning_.Run([this](int slot, int64_t tile, bool again) {
      LoadSlot& load = shared_.load_slots[slot];
      Open(tile, load);
      Fill(tile, again, load, shared_.slots[slot]);
      return IsShort(load);
    });
  }

 private:
  // Whether a tile is over before another could be planned.
  __device__ static bool IsShort(const LoadSlot& tile) {
    constexpr int64_t kColumns = 768;
    return tile.sequence.kv_len <= kColumns;
  }

  // Finds out what the tile of rows is.
  __device__ void Open(int64_t index, LoadSlot& tile) const {
    const OpenTile open =
        planning_.Open(index, tile.described, tile.description);
    if (lane_ == 0) {
      const TilePlace place = PlaceOf(open);
      tile.sequence = open.sequence(planning_.blob(), place.b);
      tile.b = place.b;
      tile.head = place.head;
      tile.kv_head = place.kv_head;
      tile.first_row = place.row_block * kRows;
      tile.maps = At<CUtensorMap>(planning_.blob(), open.maps);
      tile.has_o_map = open.has_o_map;
      tile.copied = copied_;
      tile.described = planning_.problem();
      const bool taken =
          Config::Takes(tile.sequence.kv_len) && !IsDecode(tile.sequence.q_len);
      tile.valid = taken ? Within(tile.sequence.q_len, tile.first_row) : 0;
      tile.first = {};
      if (tile.valid > 0) {
        tile.first = EnterSegment<Config::kCols>(tile.sequence, tile.first_row,
                                                 tile.valid, -1);
      }
    }
    __syncwarp();  // all have the tile
  }
  // Rows of the tile that are before `row`.
  __device__ static int Within(int64_t row, int64_t first_row) {
    return static_cast<int>(
        min(max(row - first_row, int64_t{0}), int64_t{kRows}));
  }

  __device__ void Fill(int64_t index, bool again, const LoadSlot& tile,
                       TileSlot& slot) const {
    if (lane_ != 0) return;
    const DeviceProblem& p = tile.description.problem;
    slot.tile = index;
    slot.rule = MakeScoreRule(p, tile.b, tile.head);
    const bool plain = slot.rule.plain() && !again;
    slot.kind = !tile.first.valid() ? SlotKind::kEmpty
                : plain             ? SlotKind::kFast
                                    : SlotKind::kSlow;
    slot.factor = slot.rule.factor(plain);
    slot.overflowed = false;
    slot.valid = tile.valid;
    // What other kernels have done is left alone, but not what pads it.
    slot.first_stored =
        IsDecode(tile.sequence.q_len) ? Within(kDecodeRows, tile.first_row) : 0;
    slot.end_stored = Config::Takes(tile.sequence.kv_len)
                          ? Within(p.q_len, tile.first_row)
                          : 0;
    slot.first_row = tile.first_row;
    slot.value_dim = p.value_dim;
    slot.o_dtype = p.o.dtype;
    slot.o_stride = p.o.token_stride;
    slot.o_boxed = tile.has_o_map && slot.first_stored == 0 &&
                   slot.end_stored == Within(p.q_len, tile.first_row);
    slot.o = nullptr;
    if (p.o.data != nullptr) {
      const int64_t at = tile.b * p.o.batch_stride +
                         tile.head * p.o.head_stride +
                         tile.first_row * p.o.token_stride;
      slot.o = static_cast<std::byte*>(p.o.data) +
               at * (p.o.dtype == DType::kF32 ? 4 : 2);
    }
    slot.o_aligned =
        p.o.data != nullptr && p.o.dtype != DType::kF32 &&
        IsAligned(static_cast<const uint16_t*>(slot.o), p.o.token_stride);
    slot.lse = nullptr;
    if (p.lse.data != nullptr) {
      slot.lse = p.lse.data + tile.b * p.lse.batch_stride +
                 tile.head * p.lse.head_stride + tile.first_row;
    }
  }

  const bool copied_;  // descriptions are in memory, not parameters
  Shared<Config>& shared_;
  const int lane_;
  Planning<Shared<Config>, Config::kSlots> planning_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_PLANNER_CUH_
