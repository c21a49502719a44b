#ifndef ATTND_KERNELS_PLAN_CHOOSE_H_
#define ATTND_KERNELS_PLAN_CHOOSE_H_

#include <optional>

#include "absl/types/span.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"
#include "kernels/plan_kind.h"

namespace attnd::plan {

// The kinds between which kAuto chooses: of two that take about as long, the
// earlier.
absl::Span<const PlanKind> Candidates();

// The plan that Predict finds the quickest of all kinds; its `why` has what
// each should take. A function of the request and the devices' rates alone.
Plan MakeBest(const PlanRequest& request, int devices);

// By which plan several devices should run a request about which nobody has
// said how. None: one of them should. What they do together must be done sooner
// by a fifth and by a millisecond, as it takes all of them. One device has its
// inputs as soon as the request is there, since they come to it as they arrive.
// Of more than kMostGathered sequences it is heads, where there is work for two
// milliseconds.
std::optional<PlanChoice> ChooseShared(const PlanRequest& request, int devices);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_CHOOSE_H_
