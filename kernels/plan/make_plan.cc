#include "kernels/plan/make_plan.h"

#include "absl/strings/str_cat.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::plan {

Plan MakePlan(const PlanRequest& request, int devices) {
  if (request.kind != PlanKind::kGather) return MakeHeads(request, devices);
  if (request.sequences.size() <= kMostGathered) {
    return MakeGather(request, devices);
  }
  Plan plan = MakeHeads(request, devices);
  absl::StrAppend(&plan.why, "; gather takes at most ", kMostGathered,
                  " sequences");
  return plan;
}

}  // namespace attnd::plan
