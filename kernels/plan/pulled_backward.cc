// `ring`, `striped` and `zigzag`, backward, where blocks are pulled from all. K
// and V come as in forward, and dQ stays and is added to as by ring; but dK and
// dV go nowhere while they are added to. Each device has a term of each block,
// and the device whose block it is pulls those of all, each as soon as it is
// there, and adds them up in the end.

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/plan/pulled_gradients.h"
#include "kernels/plan/ring_backward_plan.h"

namespace attnd::plan {
namespace {

class PulledBackward : private RingBackwardPlan {
 public:
  PulledBackward(const PlanRequest& request, int devices)
      : RingBackwardPlan(request, devices, {1}) {}

  Plan Make() {
    std::vector<const RingPlaces*> places;
    places.reserve(all_.size());
    for (const Sequence& sequence : all_) places.push_back(&sequence.places);
    PulledGradients gradients(std::move(places), builder_);

    ForEachDevice([&](int device) { Load(device); });
    FindDeltas();
    for (int phase = 0; phase < phases(); ++phase) {
      FetchDuring(phase);
      ForEachDevice([&](int device) {
        ComputePhase(device, phase, 0,
                     [&](int32_t sequence, const RingPlaces::Seen& seen, bool,
                         Columns& columns, Adding& adding) {
                       gradients.Add(sequence, device, seen, columns, adding);
                     });
      });
      EndTurns(phase);
    }
    ForEachDevice([&](int device) { gradients.SendSums(device); });
    return Finish();
  }
};

}  // namespace

Plan MakePulledBackward(const PlanRequest& request, int devices) {
  return PulledBackward(request, devices).Make();
}

}  // namespace attnd::plan
