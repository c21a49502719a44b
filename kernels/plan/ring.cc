// `ring`, `striped` and `zigzag`, forward: each device computes its rows over
// one block after another as they go round, so that after as many steps as
// there are devices all rows have met all columns. What a row has so far, O and
// LSE in f32, is merged with at the next step. A device has memory for two
// blocks and two such states, however many devices there are; or for all
// blocks, where they do not go round but are pulled from all, which may be
// computed over in fewer steps than there are devices: in phases. The kinds
// differ in which tokens a device has.

#include <utility>

#include "kernels/plan/ring_plan.h"

namespace attnd::plan {
namespace {

class Ring : private RingPlan {
 public:
  Ring(const PlanRequest& request, int devices) : RingPlan(request, devices) {}

  Plan Make() {
    for (int device = 0; device < devices(); ++device) Load(device);
    for (int phase = 0; phase < phases(); ++phase) {
      // What comes next is on its way while this is computed.
      FetchDuring(phase);
      for (int device = 0; device < devices(); ++device) {
        ComputePhase(device, phase);
      }
      EndTurns(phase);
    }
    return Finish();
  }

 private:
  void ComputePhase(int device, int phase) {
    const std::vector<Rows*> due = Due(device, phase);
    if (due.empty()) return;
    Compute compute;
    for (Rows* rows : due) {
      Part part = PartOf(*rows, {0, ShapeOf(rows->sequence).kv_heads});
      AddResults(*rows, part);
      compute.parts.push_back(std::move(part));
    }
    AddCompute(device, due, std::move(compute), {});
  }

  // They are a state, in f32, unless the turn is the last, in the memory of the
  // state of two turns before; it merges with that of the one before.
  void AddResults(Rows& rows, Part& part) {
    const auto& wanted = ShapeOf(rows.sequence).outputs;
    if (!wanted[TensorId::kO].has_value() &&
        !wanted[TensorId::kLse].has_value()) {
      return;
    }
    const bool last = rows.is_last_turn();
    auto& states = rows.results[rows.turn % 2];
    for (const TensorId id : {TensorId::kO, TensorId::kLse}) {
      const bool merges_by_it = id == TensorId::kLse && !last;
      if (!wanted[id].has_value() && !merges_by_it) continue;
      states[id] = builder_.NewBuffer(rows.place.device, id,
                                      last ? *wanted[id] : DType::kF32,
                                      SliceOf(rows), states[id]);
      part.buffers[id] = states[id];
      if (last) rows.outputs.emplace_back(*states[id], 0);
    }
    if (rows.turn > 0) {
      const auto& before = rows.results[(rows.turn + 1) % 2];
      part.before = State{before[TensorId::kO], *before[TensorId::kLse]};
    }
  }
};

}  // namespace

Plan MakeRing(const PlanRequest& request, int devices) {
  return Ring(request, devices).Make();
}

}  // namespace attnd::plan
