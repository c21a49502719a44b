#include <algorithm>
#include <iterator>

#include "kernels/cpu/head_slice.h"
#include "kernels/cpu/job.h"
#include "kernels/give_way.h"
#include "kernels/reference/reference.h"

namespace attnd::cpu {
namespace {

// The reference computes scores one by one: at least 16 times slower. It only
// decides which threads run a group; what a request is charged for it, the
// backend's CostFlops measures more closely.
constexpr double kReferenceSlowdown = 16;

// What the reference spends on a problem, in the fast kernels' FLOPs: it visits
// every pair whatever the mask hides. A pair costs an exponential, a row and a
// column something even when there is nothing to pair them with.
double ReferenceFlops(Op op, const Problem& p) {
  constexpr double kPairOverhead = 32;
  double columns = 1;
  for (const KvSegment& s : p.kv) columns += static_cast<double>(s.len);
  const double pairs = columns * static_cast<double>(p.q_len + 1) *
                       static_cast<double>(p.batch) *
                       static_cast<double>(p.q_heads);
  const int64_t dims = p.head_dim + p.value_dim;
  const double products =
      op == Op::kForward ? 2.0 * dims : 4.0 * dims + 2.0 * p.head_dim;
  return kReferenceSlowdown * pairs * (products + kPairOverhead);
}

}  // namespace

ReferenceJob::ReferenceJob(absl::Span<const ForwardArgs> group,
                           Algorithm algorithm)
    : forward_(group), algorithm_(algorithm) {
  Cut(Op::kForward, group);
}

ReferenceJob::ReferenceJob(absl::Span<const BackwardArgs> group,
                           Algorithm algorithm)
    : backward_(group), algorithm_(algorithm) {
  Cut(Op::kBackward, group);
}

template <class Args>
void ReferenceJob::Cut(Op op, absl::Span<const Args> group) {
  int64_t end = 0;
  for (const Args& args : group) {
    const Problem& p = args.problem;
    const bool any = HasOutputs(op, p);
    const int64_t heads = op == Op::kForward ? p.q_heads : p.kv_heads;
    turns_.push_back(any ? p.batch * heads : 0);
    ends_.push_back(end += turns_.back());
    problem_flops_.push_back(any ? ReferenceFlops(op, p) : 0);
    flops_ += problem_flops_.back();
  }
}

int64_t ReferenceJob::ProblemOf(int64_t task) const {
  return std::distance(ends_.begin(),
                       std::upper_bound(ends_.begin(), ends_.end(), task));
}

double ReferenceJob::TaskFlops(int64_t task) const {
  const int64_t problem = ProblemOf(task);
  return problem_flops_[problem] / static_cast<double>(turns_[problem]);
}

// The reference's only error is CANCELLED, which leaves the outputs undefined
// and the device as it was.
bool ReferenceJob::Run(int64_t task, Scratch&, Pause) {
  const int64_t problem = ProblemOf(task);
  const int64_t i = task - (ends_[problem] - turns_[problem]);
  if (!forward_.empty()) {
    const ForwardArgs& args = forward_[problem];
    if (!Proceed(args.problem)) return true;
    const int64_t heads = args.problem.q_heads;
    const HeadSlice slice(args, i / heads, i % heads);
    reference::Forward(slice.forward(), algorithm_).IgnoreError();
  } else {
    const BackwardArgs& args = backward_[problem];
    if (!Proceed(args.problem)) return true;
    const int64_t heads = args.problem.kv_heads;
    const HeadSlice slice(args, i / heads, i % heads);
    reference::Backward(slice.backward(), algorithm_).IgnoreError();
  }
  return true;
}

}  // namespace attnd::cpu
