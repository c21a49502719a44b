#ifndef ATTND_KERNELS_PLAN_RING_GRADIENTS_H_
#define ATTND_KERNELS_PLAN_RING_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/plan/adding.h"
#include "kernels/plan/plan_builder.h"
#include "kernels/plan/ring_places.h"

namespace attnd::plan {

// dK and dV of some heads of all blocks that go round, where they are wanted. A
// device has memory for two runs of them in f32: what the device before it has
// given comes into one while it adds to the other. Where a block goes no
// further its gradients are rounded, and then go home, to the device that has
// the block in the beginning: results lie where their tokens do, and memory
// does not grow with the number of devices, whoever adds last.
class RingGradients {
 public:
  using Steps = std::vector<int>;

  // By sequence, where its blocks are and which kv heads of it these are. All
  // must outlive it.
  RingGradients(std::vector<const RingPlaces*> places, std::vector<Run> heads,
                PlanBuilder& builder);

  // Of each step in this order, each for all devices:
  //
  // Has a part add to run r of its block, once or as often as it has parts that
  // see any of it; `last` is the last of them.
  void Add(int32_t sequence, int device, int step, size_t r, bool last,
           Columns& columns, Adding& adding);
  // Rounds the columns that go no further.
  void End(int device, int step);
  // Has what has ended pulled by the device whose it is.
  void SendHome(int device, int step);
  // Pulls what there is of the block that the device has at the next step,
  // `step`.
  void Fetch(int device, int step);

  // Downloads the results.
  void SendResults();

 private:
  // Memory of a device for one run of a block, and the last buffers in it.
  struct Memory {
    PerTensor<std::optional<int>> buffers;
    bool is_there = false;  // at this step: something has been added to it
    Steps written;          // the steps that write what is there
    Steps used;             // those, and whatever reads it
  };
  // What ends on a device at a step, in which buffers.
  struct Ended {
    Runs runs;
    PerTensor<std::optional<int>> buffers;
    Steps written;
    std::vector<Steps*> used;  // of the memory that these are in
  };
  struct Sequence {
    // By device, its memory for even and odd steps, and runs of a block.
    std::vector<std::vector<Memory>> passed[2];
    std::vector<std::vector<Memory>> home;  // results, by device and run
    std::vector<std::vector<Ended>> ended;  // at this step, likewise
  };

  int devices() const { return builder_.devices(); }
  DType DTypeOf(int32_t sequence, TensorId id) const {
    return *builder_.request().ProblemOf(sequence).outputs[id];
  }
  Slice ColumnsOf(int32_t sequence, const Run& run) const {
    return builder_.ColumnsOf(sequence, heads_[sequence].first,
                              heads_[sequence].count, run);
  }
  // Calls todo(id) for those of dK and dV that are wanted.
  template <class Do>
  void ForEachWanted(int32_t sequence, Do todo) const;
  // Calls todo(sequence, r) for the runs of which either is.
  template <class Do>
  void ForEachRun(Do todo);
  Memory& Passed(int32_t sequence, int device, int step, size_t r) {
    return all_[sequence].passed[step % 2][device][r];
  }

  bool IsWanted(int32_t sequence) const;
  void PlaceHome(int32_t sequence, int device, size_t r);
  void EndSome(int32_t sequence, int device, int step, size_t r);
  // The steps that write what ends.
  Steps& EndsOf(int32_t sequence, int device, int step, size_t r);
  // The buffer for what ends on a device, in memory from which it need not be
  // rounded. `after` is told what must come before it is written.
  int EndIn(int32_t sequence, int device, int step, size_t r, TensorId id,
            Steps& after);

  const std::vector<const RingPlaces*> places_;
  const std::vector<Run> heads_;
  PlanBuilder& builder_;
  std::vector<Sequence> all_;
};

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_RING_GRADIENTS_H_
