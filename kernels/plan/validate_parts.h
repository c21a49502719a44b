#ifndef ATTND_KERNELS_PLAN_VALIDATE_PARTS_H_
#define ATTND_KERNELS_PLAN_VALIDATE_PARTS_H_

// What Validate asks of a plan's parts and costs, beside what each step reads
// and writes.

#include <map>
#include <string>

#include "absl/types/span.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// Which columns the results of a forward's parts are over: a part's own, and
// those of the state that it merges with.
class MergedColumns {
 public:
  // Notes a part, and the one, noted before, whose results it merges with;
  // nullptr: none. False: they have columns in common, which so count twice.
  bool Add(const Part& part, const Part* before);
  // Whether the results of some of the part's rows are over all that they see.
  bool HasAll(const Part& part, const RowIntervals& sees,
              const Run& rows) const;

 private:
  std::map<const Part*, Runs> columns_;
};

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
