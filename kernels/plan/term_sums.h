#ifndef ATTND_KERNELS_PLAN_TERM_SUMS_H_
#define ATTND_KERNELS_PLAN_TERM_SUMS_H_

// Gradients to which several devices add: each has a term, and the device that
// sends the result fetches the others' and adds them up.

#include <vector>

#include "absl/types/span.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_builder.h"
#include "kernels/plan/term_fetch.h"

namespace attnd::plan {

struct Total {
  int buffer = 0;  // the result's
  Slice slice;     // what of it to add up
  // In this order. They may lack tokens of the slice, and have others; of what
  // none has the sum is 0.
  std::vector<Term> terms;
};

// Pulls the terms that lie on other devices to `device`, from each device at
// once, and adds all up. By total, the steps after which it is there.
std::vector<std::vector<int>> SumTerms(int device,
                                       absl::Span<const Total> totals,
                                       PlanBuilder& builder);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_TERM_SUMS_H_
