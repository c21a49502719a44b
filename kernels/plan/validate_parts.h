#ifndef ATTND_KERNELS_PLAN_VALIDATE_PARTS_H_
#define ATTND_KERNELS_PLAN_VALIDATE_PARTS_H_

// What Validate asks of a plan's parts and costs, beside what each step reads
// and writes.

#include <string>

#include "absl/types/span.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// Both: what is wrong, or "".
//
// Of all parts of a plan: each pair of a row and a column that see each other
// is in exactly one, for each head.
std::string FaultOfPairs(const PlanRequest& request,
                         absl::Span<const Part* const> parts);
// Costs are the sums of what the steps move and compute, and the memory that of
// the buffers.
std::string FaultOfCosts(const PlanRequest& request, const Plan& plan);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_VALIDATE_PARTS_H_
