#ifndef ATTND_KERNELS_PLAN_MAKE_PLAN_H_
#define ATTND_KERNELS_PLAN_MAKE_PLAN_H_

#include <string>

#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// The plan of `request.kind`, which is kHeads or kGather, over devices 0 to
// `devices` - 1.
Plan MakePlan(const PlanRequest& request, int devices);

// A line for each step, for people: what it does, where, and after which.
std::string Explain(const PlanRequest& request, const Plan& plan);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_MAKE_PLAN_H_
