#ifndef ATTND_KERNELS_PLAN_GATHER_H_
#define ATTND_KERNELS_PLAN_GATHER_H_

// What all plans of `gather` have in common: which tokens of each sequence lie
// on which device, what of the rest is fetched, and in which sections of heads.

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

// So many sections at most.
inline constexpr int kMostSections = 6;
// Sections of heads: where each ends, as a share of all heads; the last is 1.
using Sections = std::vector<double>;

// How a request is gathered.
struct Gathering {
  Gathered what = Gathered::kColumns;
  Sections sections;
};
// What the request says, and else what suits it. Of backward that is rows where
// a request has as many query heads as K/V heads, and else what takes less
// time.
//
// What is fetched for a section comes while the one before it is computed, and
// so may be larger than that by as much as computing takes longer than
// fetching: the first is small, as nothing hides it, and few follow. What
// backward sends back of the last one nothing hides either, so that is as small
// as the first.
Gathering ChooseGathering(const PlanRequest& request, int devices);

// A section's kv heads of a sequence.
struct HeadRange {
  int64_t head = 0, heads = 0;
};
HeadRange SectionHeads(const ProblemShape& shape, const Sections& sections,
                       int section);

// Forward, or backward.
Plan GatherColumns(const PlanRequest& request, int devices,
                   const Sections& sections);
// Backward alone.
Plan GatherRows(const PlanRequest& request, int devices,
                const Sections& sections);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_GATHER_H_
