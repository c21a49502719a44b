#ifndef ATTND_KERNELS_CUDA_SM90_PLANNER_CUH_
#define ATTND_KERNELS_CUDA_SM90_PLANNER_CUH_

// The planner: one warp, which decides what the block does next, and finds out
// all there is to know of a tile of rows while the one before is worked on.

#include <cstdint>

#include "kernels/cuda/launch/kernel.h"
#include "kernels/cuda/sm90/planning.cuh"
#include "kernels/cuda/sm90/shared.cuh"
#include "kernels/cuda/tile/row.cuh"

namespace attnd::cuda::sm90 {

template <class Config>
class Planner {
 public:
  static constexpr int kRows = Config::kRows;

  __device__ Planner(const LaunchParams& params, Shared<Config>& shared)
      : first_(BlobOf(params), params.first_run),
        copied_(params.blob != nullptr),
        shared_(shared),
        lane_(threadIdx.x % 32),
        planning_(params, shared) {
    if (lane_ < Config::kSlots) {
      shared.load_slots[lane_].described =
          lane_ == 0 ? params.first_run.problem : 0;
    }
    first_.Put(shared.load_slots[0].description);
    __syncwarp();  // the first slot has a description, the others have none
  }

  __device__ void Run() {
    planning_.Run([this](int slot, int64_t tile, bool again) {
      LoadSlot& load = shared_.load_slots[slot];
      const OpenTile open =
          planning_.Open(tile, load.described, load.description);
      if (lane_ == 0) {
        const TilePlace place = PlaceOf(open);
        PlanLoads(open, place, again, load);
        planning_.TellLoaders(slot);
        Plan(open, place, tile, load, shared_.slots[slot]);
      }
      __syncwarp();  // all have the tile
      return IsShort(load);
    });
  }

 private:
  // Whether a tile is worked on for less time than planning the next one takes.
  __device__ static bool IsShort(const LoadSlot& tile) {
    constexpr int64_t kColumns = 768;
    return tile.sequence.kv_len <= kColumns;
  }

  // Finds out what the loaders need to know of the tile of rows. This comes
  // before Plan, as what they load takes long to come. For one lane.
  __device__ void PlanLoads(const OpenTile& open, const TilePlace& place,
                            bool again, LoadSlot& load) const {
    const DeviceProblem& p = *open.problem;
    load.sequence = open.sequence(planning_.blob(), place.b);
    const Sequence& sequence = load.sequence;
    const int first_row = place.row_block * kRows;
    load.b = place.b;
    load.head = place.head;
    load.kv_head = place.kv_head;
    load.first_row = first_row;
    load.maps = At<CUtensorMap>(planning_.blob(), open.maps);
    load.copied = copied_;
    const bool taken =
        Config::Takes(sequence.kv_len) && !IsDecode(sequence.q_len);
    const int valid = taken ? Within(sequence.q_len, first_row) : 0;
    load.valid = valid;
    load.first = {};
    if (valid > 0) {
      load.first = EnterSegment<Config::kCols>(sequence, first_row, valid, -1);
    }
    const bool plain = MakeScoreRule(p, place.b, place.head).plain() && !again;
    load.kind = !load.first.valid() ? SlotKind::kEmpty
                : plain             ? SlotKind::kFast
                                    : SlotKind::kSlow;
  }
  // How many of the tile's rows come before the sequence's row `row`.
  __device__ static int Within(int64_t row, int64_t first_row) {
    return static_cast<int>(
        min(max(row - first_row, int64_t{0}), int64_t{kRows}));
  }

  // The same for what consumers need. It reads everything first and writes
  // last, or each load would wait for the store before it.
  __device__ void Plan(const OpenTile& open, const TilePlace& place,
                       int64_t index, const LoadSlot& load,
                       TileSlot& to) const {
    const DeviceProblem& p = *open.problem;
    const Sequence& sequence = load.sequence;
    const int first_row = load.first_row;
    TileSlot slot;
    slot.tile = index;
    slot.rule = MakeScoreRule(p, place.b, place.head);
    slot.kind = load.kind;
    slot.factor = slot.rule.factor(slot.kind == SlotKind::kFast);
    slot.overflowed = false;
    slot.valid = load.valid;
    // Rows that another kernel stores are left alone: the first kDecodeRows of
    // a sequence that is decoded, and sequences of the other shape's lengths.
    // The padding after the former is stored here, as rows that see nothing.
    const int rows = Within(p.q_len, first_row);
    slot.first_stored =
        IsDecode(sequence.q_len) ? Within(kDecodeRows, first_row) : 0;
    slot.end_stored = Config::Takes(sequence.kv_len) ? rows : 0;
    slot.o_boxed =
        open.has_o_map && slot.first_stored == 0 && slot.end_stored == rows;
    slot.first_row = first_row;
    slot.value_dim = p.value_dim;
    slot.o_dtype = p.o.dtype;
    slot.o_stride = p.o.token_stride;
    slot.o = nullptr;
    if (p.o.data != nullptr) {
      const int64_t at = place.b * p.o.batch_stride +
                         place.head * p.o.head_stride +
                         first_row * p.o.token_stride;
      slot.o = static_cast<std::byte*>(p.o.data) +
               at * (p.o.dtype == DType::kF32 ? 4 : 2);
    }
    slot.o_aligned =
        p.o.data != nullptr &&
        (p.o.dtype == DType::kF32
             ? IsAligned(static_cast<const float*>(slot.o), p.o.token_stride)
             : IsAligned(static_cast<const uint16_t*>(slot.o),
                         p.o.token_stride));
    slot.alone =
        p.before != 0 || (p.o.data != nullptr && p.o.dtype == DType::kF32);
    slot.lse = nullptr;
    if (p.lse.data != nullptr) {
      slot.lse = p.lse.data + place.b * p.lse.batch_stride +
                 place.head * p.lse.head_stride + first_row;
    }
    to = slot;
  }

  // The description of the first run's problem, mostly also the first tile's.
  // It is on its way while the planner begins.
  DescriptionCopy<WarpTeam> first_;
  const bool copied_;  // whether descriptors are in memory, not in parameters
  Shared<Config>& shared_;
  const int lane_;
  Planning<Shared<Config>, Config::kSlots> planning_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_PLANNER_CUH_
