#include "kernels/plan/make_plan.h"

#include "kernels/plan/plan_builder.h"

namespace attnd::plan {

Plan MakePlan(const PlanRequest& request, int devices) {
  return request.kind == PlanKind::kGather ? MakeGather(request, devices)
                                           : MakeHeads(request, devices);
}

}  // namespace attnd::plan
