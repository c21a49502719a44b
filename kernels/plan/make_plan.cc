#include "kernels/plan/make_plan.h"

#include "absl/strings/str_cat.h"
#include "kernels/plan/choose.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::plan {

Plan MakePlan(const PlanRequest& request, int devices) {
  const PlanKind kind = request.kind;
  if (kind == PlanKind::kAuto) return MakeBest(request, devices);
  if (!SharesTokens(kind)) return MakeHeads(request, devices);
  if (request.sequences.size() > kMostGathered) {
    Plan plan = MakeHeads(request, devices);
    absl::StrAppend(&plan.why, "; ", PlanName(kind), " takes at most ",
                    kMostGathered, " sequences");
    return plan;
  }
  if (kind == PlanKind::kGather) return MakeGather(request, devices);
  if (kind == PlanKind::kKv) return MakeKv(request, devices);
  if (request.op == Op::kForward) return MakeRing(request, devices);
  return request.transport == Transport::kRing
             ? MakeRingBackward(request, devices)
             : MakePulledBackward(request, devices);
}

}  // namespace attnd::plan
