#ifndef ATTND_KERNELS_PLAN_RING_PHASES_H_
#define ATTND_KERNELS_PLAN_RING_PHASES_H_

#include <vector>

#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// By step, the launch in which a device computes over the block that it has
// then: phases 0, 1, ..., none left out.
//
// Blocks that go round are there one at a time, so each step is a phase of its
// own. Pulled ones may be computed over together, which saves launches, and a
// state that is written and read between them. A device's own block is the
// first phase, as it need not be waited for. With `request.phases` > 1 the
// others are shared out evenly to the phases that are left; with 1 all is one
// phase. With 0 each phase has as many blocks as all before it: 1, 1, 2, 4,
// ..., which come while those are computed over if that takes twice as long as
// pulling them. A backward then has one block a phase, so that its gradients go
// home while the next one is computed over.
std::vector<int> PhasesOf(const PlanRequest& request, int devices);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_RING_PHASES_H_
