#ifndef ATTND_KERNELS_PLAN_MAKE_PLAN_H_
#define ATTND_KERNELS_PLAN_MAKE_PLAN_H_

#include <cstddef>
#include <string>

#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// A plan that cuts each sequence has some hundred steps of it. Of more than
// these it would take longer to plan than to compute.
inline constexpr size_t kMostGathered = 1024;

// The plan of `request.kind` over devices 0 to `devices` - 1. Of more sequences
// than that it is heads, whatever was asked for, and says so.
Plan MakePlan(const PlanRequest& request, int devices);

// A line for each step, for people: what it does, where, and after which.
std::string Explain(const PlanRequest& request, const Plan& plan);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_MAKE_PLAN_H_
