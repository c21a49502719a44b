#ifndef ATTND_KERNELS_PLAN_RING_PLAN_H_
#define ATTND_KERNELS_PLAN_RING_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "kernels/plan/plan_builder.h"
#include "kernels/plan/ring_places.h"

namespace attnd::plan {

// What forward and backward have in common where columns go round: every device
// has some rows of each sequence, and a block of its columns. Rows stay. By
// ring, K and V of a block are passed on from device to device, each of which
// has memory for two: the one that it computes over, and the one that comes
// meanwhile. Or each device pulls all blocks from those that have them, into
// memory for each, and none waits for what another one computes.
class RingPlan {
 protected:
  using Steps = std::vector<int>;

  // One run of rows, and what its device has of it.
  struct Rows {
    int32_t sequence = 0;
    RingPlaces::Rows place;
    PerTensor<std::optional<int>> inputs = {};  // but for the bias
    std::vector<std::optional<int>> bias = {};  // by turn
    PerTensor<int> uploads = {};                // the steps, of inputs
    Steps loaded = {};
    size_t turn = 0;      // the next one
    Steps computed = {};  // the steps of the last one, by section of heads
    // The last buffers of what it has so far, in either of two memories.
    PerTensor<std::optional<int>> results[2] = {};
    std::vector<std::pair<int, size_t>> outputs = {};  // and their sections

    const RingPlaces::Turn& next() const { return place.turns[turn]; }
    bool is_last_turn() const { return turn + 1 == place.turns.size(); }
  };
  // Memory of a device for one run of a block.
  struct Slot {
    std::optional<int> k, v;  // the last buffers in it
    Steps brought;            // the steps that bring it
    Steps used;               // those, and whatever reads it
  };
  // What there is of one sequence.
  struct Sequence {
    RingPlaces places;  // but for the rows
    // A device's slots for a step, or, by ring, for even and odd ones; by
    // device, and runs of a block.
    std::vector<std::vector<std::vector<Slot>>> slots;
  };

  RingPlan(const PlanRequest& request, int devices);
  ~RingPlan() = default;

  static void Append(const Steps& steps, Steps& to) {
    to.insert(to.end(), steps.begin(), steps.end());
  }
  const PlanRequest& request() const { return builder_.request(); }
  int devices() const { return builder_.devices(); }
  int32_t sequences() const {
    return static_cast<int32_t>(request().sequences.size());
  }
  const ProblemShape& ShapeOf(int32_t sequence) const {
    return request().ProblemOf(sequence);
  }
  bool by_ring() const { return request().transport == Transport::kRing; }
  int phases() const { return all_.empty() ? 0 : all_.front().places.phases; }
  Slice SliceOf(const Rows& rows) const;

  // What the device has from the start: its block, and what its rows need, but
  // for O.
  void Load(int device);
  // Has all devices pull what is to come while they compute a phase: by ring
  // the next block; and else all blocks, at the first phase.
  void FetchDuring(int phase);

  // The rows that have a turn then, in order.
  std::vector<Rows*> Due(int device, int phase);
  // Some kv heads of the next turn of some rows, but for its results.
  Part PartOf(const Rows& rows, const Run& heads);
  // Computes a section of heads of such turns on one device, a part each, after
  // `after` and whatever brings what they need.
  int AddCompute(int device, absl::Span<Rows* const> due, Compute compute,
                 Steps after, size_t section = 0);
  // Rows that had a turn then have the next one.
  void EndTurns(int phase);

  // Sends the rows' outputs.
  Plan Finish(int sections = 1);

  PlanBuilder builder_;
  std::vector<Sequence> all_;
  std::vector<Rows> rows_;  // by sequence and device

 private:
  void LoadRows(Rows& rows);
  void LoadBias(Rows& rows);
  Slot& SlotAt(int32_t sequence, int device, int step, size_t r) {
    auto& slots = all_[sequence].slots;
    return slots[step % slots.size()][device][r];
  }
  // Buffers for what a device has of a block at a step, in the memory of what
  // was in this slot before.
  Slot& NewBlock(int device, int32_t sequence, int step, size_t r,
                 const Run& run);
  // Pulls what the device has at a step from one that has it by then, once it
  // is there, and once nobody needs any more what it takes the place of.
  void Fetch(int device, int step);

  std::vector<Steps> fetched_;  // by device: its last pull, unless by ring
};

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_RING_PLAN_H_
