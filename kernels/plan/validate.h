#ifndef ATTND_KERNELS_PLAN_VALIDATE_H_
#define ATTND_KERNELS_PLAN_VALIDATE_H_

#include "absl/status/status.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// Proves of a plan, or says with INTERNAL what is wrong:
//
//   - steps wait for earlier ones only, and use buffers of their own device,
//     but for what they pull;
//   - every pair of a row and a column that see each other is in exactly one
//     part of a Compute, for each head;
//   - whatever a step reads has been written, all of it, by steps that it waits
//     for, and nothing is written twice: no step can overtake another;
//   - memory is reused once whatever was there before is done with, by all
//     steps that use it, those of other devices too, or by the one part that
//     adds to what is there;
//   - what is sent is over all that it should be, each pair of a row and a
//     column counting once: results of rows over all columns that they see,
//     gradients of columns over all rows that see them, whatever was merged,
//     added and summed on the way;
//   - every element of every wanted output is sent to the host exactly once;
//   - costs are the sums of what the steps move and compute.
//
// Takes time with the square of the number of steps: for tests, and for the
// first plans that a team makes.
absl::Status Validate(const PlanRequest& request, const Plan& plan);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_VALIDATE_H_
