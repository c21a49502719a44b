#ifndef ATTND_KERNELS_PLAN_GATHER_H_
#define ATTND_KERNELS_PLAN_GATHER_H_

// What forward and backward of `gather` have in common: which tokens of each
// sequence lie on which device, and the sections of heads in which the rest is
// fetched.

#include <cstdint>
#include <vector>

#include "kernels/plan/cuts.h"
#include "kernels/plan/plan_builder.h"
#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// Of one sequence, by device.
struct Placing {
  std::vector<Runs> rows, columns;
};

// For every sequence. A sequence under a causal mask is cut in zigzag, any
// other evenly; the larger shares go to the devices that have less to compute.
std::vector<Placing> PlaceTokens(const PlanRequest& request, int devices);

// Sections of heads: where each ends, as a share of all heads; the last is 1.
using Sections = std::vector<double>;
// The sections that suit the request, as many as it says if it does. What is
// fetched for one comes while the one before it is computed, and so may be
// larger than that by as much as computing takes longer than fetching: the
// first is small, as nothing hides it, and few follow. What backward sends back
// of the last one nothing hides either, so that is as small as the first.
Sections ChooseSections(const PlanRequest& request, int devices);

// A section's kv heads of a sequence.
struct HeadRange {
  int64_t head = 0, heads = 0;
};
HeadRange SectionHeads(const ProblemShape& shape, const Sections& sections,
                       int section);

// In these sections.
Plan GatherForward(const PlanRequest& request, int devices,
                   const Sections& sections);
Plan GatherBackward(const PlanRequest& request, int devices,
                    const Sections& sections);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_GATHER_H_
