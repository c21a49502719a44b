#ifndef ATTND_KERNELS_PLAN_COST_H_
#define ATTND_KERNELS_PLAN_COST_H_

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// The FLOPs of one sequence of the request, as Request::flops counts them.
double FlopsOf(const PlanRequest& request, const SequenceShape& sequence);
// Those of one pair of a row and a column, in all heads.
double FlopsOfPair(const PlanRequest& request, const SequenceShape& sequence,
                   int64_t q_heads);

double FlopsOf(const PlanRequest& request, const Compute& compute);

// By buffer, the bytes of memory that must be found for it: what the largest of
// those takes that are in it one after another, and 0 for what takes over
// another's. The plan's buffers reuse earlier ones, each once at most.
std::vector<int64_t> MemoryBytes(const PlanRequest& request, const Plan& plan);

// What the buffers of all devices together take at most, for whoever must know
// before there is a plan: it costs as much whatever the sizes are, and memory
// of tensors is not looked at. Double, as nobody may have checked that it fits
// an integer.
double MostBufferBytes(Op op, const Problem& problem, PlanKind kind,
                       int devices);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_COST_H_
