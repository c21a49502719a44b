// `ring`, `striped` and `zigzag`, backward. K and V go round as in forward, and
// dK and dV of a block in f32 behind them: a device pulls what the one before
// it has of them, and adds its rows' part while it computes. So to block c
// devices c, c + 1, ... add in this order, which never depends on who is
// faster. dQ stays, each turn of its rows adds to it, and the last one rounds.
//
// What a device is to add to is complete when the device before it has computed
// the step before. So that pulling it hides behind computing, a step is
// computed in two sections of heads: gradients of one are pulled while the
// other is computed.
//
// Of a block some columns may go further than others. A device computes all
// that is there of a run of which it sees anything, as all of it goes on.

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/plan/gather.h"
#include "kernels/plan/ring_backward_plan.h"
#include "kernels/plan/ring_gradients.h"

namespace attnd::plan {
namespace {

// One where there are no two heads.
Sections SectionsOf(const PlanRequest& request) {
  for (const ProblemShape& shape : request.problems) {
    if (shape.kv_heads > 1) return {0.5, 1};
  }
  return {1};
}

class RingBackward : private RingBackwardPlan {
 public:
  RingBackward(const PlanRequest& request, int devices)
      : RingBackwardPlan(request, devices, SectionsOf(request)) {
    std::vector<const RingPlaces*> places;
    places.reserve(all_.size());
    for (const Sequence& sequence : all_) places.push_back(&sequence.places);
    for (int section = 0; section < sections(); ++section) {
      std::vector<Run> heads;
      heads.reserve(all_.size());
      for (int32_t i = 0; i < sequences(); ++i) {
        heads.push_back(HeadsOf(i, section));
      }
      gradients_.emplace_back(places, std::move(heads), builder_);
    }
  }

  Plan Make() {
    ForEachDevice([&](int device) { Load(device); });
    FindDeltas();
    for (int step = 0; step < devices(); ++step) {
      // What comes next is on its way while this step is computed.
      const bool goes_on = step + 1 < devices();
      FetchDuring(step);
      for (int section = 0; section < sections(); ++section) {
        RingGradients& of = gradients_[section];
        ForEachDevice([&](int device) { ComputeStep(device, step, section); });
        // At once, as a device's pulls may wait for each other: not behind what
        // the next section must have computed.
        ForEachDevice([&](int device) { of.SendHome(device, step); });
        if (!goes_on) continue;
        ForEachDevice([&](int device) { of.Fetch(device, step + 1); });
      }
      EndTurns(step);
    }
    for (RingGradients& gradients : gradients_) gradients.SendResults();
    return Finish(sections());
  }

 private:
  void ComputeStep(int device, int step, int section) {
    RingGradients& of = gradients_[section];
    ComputePhase(device, step, section,
                 [&](int32_t sequence, const RingPlaces::Seen& seen, bool last,
                     Columns& columns, Adding& adding) {
                   of.Add(sequence, device, step, seen.r, last, columns,
                          adding);
                 });
    of.End(device, step);
  }

  std::vector<RingGradients> gradients_;  // by section
};

}  // namespace

Plan MakeRingBackward(const PlanRequest& request, int devices) {
  return RingBackward(request, devices).Make();
}

}  // namespace attnd::plan
