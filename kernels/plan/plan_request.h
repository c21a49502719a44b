#ifndef ATTND_KERNELS_PLAN_PLAN_REQUEST_H_
#define ATTND_KERNELS_PLAN_PLAN_REQUEST_H_

// What a plan is made of: the shapes of a group of problems, without memory.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cut_unit.h"
#include "kernels/device_rates.h"
#include "kernels/mask.h"
#include "kernels/plan_kind.h"
#include "kernels/request.h"

namespace attnd::plan {

// What `gather` fetches: K and V of the columns that a device's rows see, or Q,
// dO and their kin of the rows that see its columns.
enum class Gathered { kColumns, kRows };

// Where inputs lie before a plan begins, and so which of its steps take time.
enum class InputsLie {
  // In the host's memory, where results are wanted, too.
  kOnHost,
  // Wherever the plan wants them on the devices; results stay there.
  kWherePlanned,
  // As before, but for K and V: each device has one run of each sequence's
  // columns, cut evenly, and what a plan wants elsewhere is pulled.
  kByRanges,
};

// How columns come to a device in kinds that send them round: kRing: from the
// device before it, which had them at the step before, into one of two slots;
// kPull: straight from the device that has them in the beginning, into a slot
// for each.
enum class Transport { kRing, kPull };

// What the sequences of one problem have in common.
struct ProblemShape {
  int64_t q_heads = 0, kv_heads = 0;
  int64_t head_dim = 0, value_dim = 0;
  // Of what is given, and of what is wanted.
  PerTensor<std::optional<DType>> inputs, outputs;
  bool bias_per_head = false;  // or one bias for all heads

  int64_t group() const { return kv_heads == 0 ? 1 : q_heads / kv_heads; }
};

struct SequenceShape {
  int32_t problem = 0;
  int64_t b = 0;      // in the problem's batch
  RowIntervals sees;  // its lengths, and which columns each row sees
  CutUnit unit;
};

struct PlanRequest {
  Op op = Op::kForward;
  std::vector<ProblemShape> problems;  // of one dtype and one pair of dims
  std::vector<SequenceShape> sequences;
  PlanKind kind = PlanKind::kHeads;  // never kOneDevice
  // Of kGather: in how many sections of heads data is fetched and computed, if
  // there may be so many (gather.h); 0: as the plan finds best.
  int sections = 0;
  // Of its backward: what is fetched; none: as the plan finds best. Forward
  // always fetches columns.
  std::optional<Gathered> gathered;
  InputsLie inputs = InputsLie::kOnHost;
  bool deterministic = false;  // as GroupOptions has it
  DeviceRates rates;           // of each device
  // Of kRing, kStriped and kZigzag.
  Transport transport = Transport::kRing;
  // Of kPull: in how many launches, if there may be so many, a device computes
  // over all blocks; 0: as the plan finds best (ring_phases.h).
  int phases = 0;

  const ProblemShape& ProblemOf(const SequenceShape& sequence) const {
    return problems[sequence.problem];
  }
  const ProblemShape& ProblemOf(int32_t sequence) const {
    return ProblemOf(sequences[sequence]);
  }
};

// Of the op's kernels.
template <class Request>
auto& KernelRatesOf(Request& request) {
  return request.op == Op::kForward ? request.rates.forward
                                    : request.rates.backward;
}

// The shapes of problems of which every tensor is given, and every result is
// wanted in the inputs' type; their memory is not looked at.
PlanRequest DescribeShapes(Op op, absl::Span<const Problem* const> problems,
                           const GroupOptions& options, const Backend& backend);
// The shapes of a group: every sequence that has rows or columns to compute.
// `backend` is any of the team's members.
PlanRequest Describe(absl::Span<const ForwardArgs> group,
                     const GroupOptions& options, const Backend& backend);
PlanRequest Describe(absl::Span<const BackwardArgs> group,
                     const GroupOptions& options, const Backend& backend);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_PLAN_REQUEST_H_
