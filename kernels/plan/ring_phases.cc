#include "kernels/plan/ring_phases.h"

#include <algorithm>
#include <bit>

namespace attnd::plan {
namespace {

int PulledPhase(const PlanRequest& request, int devices, int step) {
  if (step == 0 || request.phases == 1) return 0;
  if (request.phases > 1) {
    const int others = std::min(request.phases, devices) - 1;
    return 1 + (step - 1) * others / (devices - 1);
  }
  if (request.op == Op::kBackward) return step;
  return std::bit_width(static_cast<unsigned>(step));
}

}  // namespace

std::vector<int> PhasesOf(const PlanRequest& request, int devices) {
  std::vector<int> phases;
  phases.reserve(devices);
  for (int step = 0; step < devices; ++step) {
    phases.push_back(request.transport == Transport::kRing
                         ? step
                         : PulledPhase(request, devices, step));
  }
  return phases;
}

}  // namespace attnd::plan
