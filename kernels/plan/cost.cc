#include "kernels/plan/cost.h"

#include <algorithm>

#include "kernels/plan/cuts.h"

namespace attnd::plan {
double FlopsOfPair(const PlanRequest& request, const SequenceShape& sequence,
                   int64_t q_heads) {
  const ProblemShape& shape = request.ProblemOf(sequence);
  return (request.op == Op::kForward ? 2.0 : 5.0) *
         static_cast<double>((shape.head_dim + shape.value_dim) * q_heads);
}

double FlopsOf(const PlanRequest& request, const SequenceShape& sequence) {
  const RowIntervals& sees = sequence.sees;
  return FlopsOfPair(request, sequence, request.ProblemOf(sequence).q_heads) *
         PairsOf(sees, {0, sees.rows}, {0, sees.columns});
}

absl::Duration Predict(const PlanRequest& request, const Plan& plan) {
  double seconds = 0;
  for (const PlanCost::Device& device : plan.cost.devices) {
    const double fetch =
        static_cast<double>(device.pulled_bytes) / request.pulled_per_second;
    const double compute = device.flops / request.flops_per_second;
    const double first = fetch * plan.first_section;
    seconds = std::max(seconds, first + std::max(compute, fetch - first));
  }
  return absl::Seconds(seconds);
}

}  // namespace attnd::plan
