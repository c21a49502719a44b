#include "kernels/cuda/capi/capi.h"

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cuda/backward.h"
#include "kernels/cuda/baselines/naive/naive_backward.h"
#include "kernels/cuda/capi/capi_problem.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/forward.h"
#include "kernels/cuda/fused/backward.h"
#include "kernels/cuda/fused/forward.h"

using attnd::Algorithm;
using attnd::BackwardArgs;
using attnd::DType;
using attnd::ForwardArgs;
using attnd::KvSegment;
using attnd::cuda::Gpu;
using attnd::cuda::LaunchCounts;

struct AttndPlan {
  explicit AttndPlan(void* stream)
      : workspace(static_cast<cudaStream_t>(stream),
                  std::numeric_limits<int64_t>::max()) {}

  size_t size() const { return segments.size(); }

  std::vector<KvSegment> segments;  // one of each problem
  // One of the two has all problems, the other none.
  std::vector<ForwardArgs> forward;
  std::vector<BackwardArgs> backward;
  int32_t algorithm = ATTND_AUTO;
  bool deterministic = false;
  attnd::cuda::Workspace workspace;
};

namespace {

static_assert(ATTND_BF16 == static_cast<int>(DType::kBF16));
static_assert(ATTND_FLASH_ATTENTION_2 ==
              static_cast<int>(Algorithm::kFlashAttention2));

thread_local std::string last_error;

int Report(const absl::Status& status) {
  if (!status.ok()) last_error = std::string(status.message());
  return static_cast<int>(status.code());
}

const AttndForwardProblem& ForwardOf(const AttndForwardProblem& p) { return p; }
const AttndForwardProblem& ForwardOf(const AttndBackwardProblem& p) {
  return p.forward;
}

// The contract's algorithm that it is.
Algorithm Named(int32_t algorithm) {
  switch (algorithm) {
    case ATTND_ANY_GPU:
      return Algorithm::kFlashAttention2;
    case ATTND_NAIVE_AUTOGRAD:
      return Algorithm::kNaive;
    default:
      return static_cast<Algorithm>(algorithm);
  }
}

absl::Status Supports(const ForwardArgs& args, int32_t algorithm) {
  if (algorithm == ATTND_NAIVE_AUTOGRAD) {
    return absl::UnimplementedError("forward has one order of naive steps");
  }
  return attnd::cuda::SupportsForward(args.problem, Named(algorithm));
}

absl::Status Supports(const BackwardArgs& args, int32_t algorithm) {
  return attnd::cuda::SupportsBackward(args.problem, Named(algorithm));
}

// Some of the plan's problems, in one call.
absl::StatusOr<LaunchCounts> Run(absl::Span<const ForwardArgs> group,
                                 const Gpu& gpu, AttndPlan& plan) {
  if (plan.algorithm == ATTND_ANY_GPU) {
    return attnd::cuda::EnqueueFused(group, gpu, plan.workspace,
                                     {.any_gpu = true});
  }
  return attnd::cuda::EnqueueForward(group, Named(plan.algorithm), gpu,
                                     plan.workspace);
}

absl::StatusOr<LaunchCounts> Run(absl::Span<const BackwardArgs> group,
                                 const Gpu& gpu, AttndPlan& plan) {
  if (plan.algorithm == ATTND_ANY_GPU) {
    return attnd::cuda::EnqueueFusedBackward(
        group, gpu, plan.workspace,
        {.deterministic = plan.deterministic, .any_gpu = true});
  }
  if (plan.algorithm == ATTND_NAIVE_AUTOGRAD) {
    return attnd::cuda::EnqueueNaiveBackward(
        group, plan.workspace,
        {.order = attnd::cuda::NaiveOrder::kAutograd,
         .deterministic = plan.deterministic});
  }
  return attnd::cuda::EnqueueBackward(
      group,
      {.algorithm = Named(plan.algorithm), .deterministic = plan.deterministic},
      gpu, plan.workspace);
}

template <class From, class Args>
absl::Status Fill(absl::Span<const From> problems, AttndPlan& plan,
                  std::vector<Args>& group) {
  const AttndForwardProblem& first = ForwardOf(problems[0]);
  for (const From& problem : problems) {
    if (absl::Status s = attnd::cuda::Check(problem); !s.ok()) return s;
    const AttndForwardProblem& p = ForwardOf(problem);
    if (p.dtype != first.dtype || p.head_dim != first.head_dim ||
        p.value_dim != first.value_dim) {
      return absl::InvalidArgumentError("a group shares dtype and dims");
    }
    plan.segments.push_back(attnd::cuda::MakeSegment(problem));
  }
  for (size_t i = 0; i < problems.size(); ++i) {
    group.push_back(attnd::cuda::MakeArgs(problems[i], plan.segments[i]));
    if (absl::Status s = Supports(group.back(), plan.algorithm); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

template <class From, class Args>
int Create(const From* problems, int32_t count, int32_t algorithm, void* stream,
           std::vector<Args> AttndPlan::*group, AttndPlan** plan) {
  *plan = nullptr;
  if (count < 1 || problems == nullptr) {
    return Report(absl::InvalidArgumentError("a plan needs a problem"));
  }
  if (algorithm < ATTND_AUTO || algorithm > ATTND_ANY_GPU) {
    return Report(absl::InvalidArgumentError("algorithm"));
  }
  auto made = std::make_unique<AttndPlan>(stream);
  made->algorithm = algorithm;
  const absl::Span<const From> all(problems, static_cast<size_t>(count));
  if (absl::Status s = Fill(all, *made, (*made).*group); !s.ok()) {
    return Report(s);
  }
  *plan = made.release();
  return 0;
}

// Enqueues the plan's problems in calls of `size`.
template <class Args>
absl::Status RunAll(absl::Span<const Args> group, size_t size, const Gpu& gpu,
                    AttndPlan& plan, AttndEnqueued& sum) {
  for (size_t first = 0; first < group.size(); first += size) {
    const auto counts = Run(group.subspan(first, size), gpu, plan);
    if (!counts.ok()) return counts.status();
    sum.kernels += counts->kernels;
    sum.copies += counts->copies;
  }
  return absl::OkStatus();
}

int Enqueue(AttndPlan& plan, size_t size, AttndEnqueued* enqueued) {
  AttndEnqueued sum = {};
  const auto start = std::chrono::steady_clock::now();
  // That of the plan's stream, as capi.h asks.
  const absl::StatusOr<Gpu> gpu = attnd::cuda::CurrentGpu();
  if (!gpu.ok()) return Report(gpu.status());
  absl::Status status =
      RunAll<ForwardArgs>(plan.forward, size, *gpu, plan, sum);
  if (status.ok()) {
    status = RunAll<BackwardArgs>(plan.backward, size, *gpu, plan, sum);
  }
  if (!status.ok()) return Report(status);
  sum.host_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::steady_clock::now() - start)
                    .count();
  sum.device_bytes = plan.workspace.device_bytes();
  if (enqueued != nullptr) *enqueued = sum;
  return 0;
}

}  // namespace

extern "C" {

int attnd_plan_create(const AttndForwardProblem* problems, int32_t count,
                      int32_t algorithm, void* stream, AttndPlan** plan) {
  return Create(problems, count, algorithm, stream, &AttndPlan::forward, plan);
}

int attnd_backward_plan_create(const AttndBackwardProblem* problems,
                               int32_t count, int32_t algorithm,
                               int32_t deterministic, void* stream,
                               AttndPlan** plan) {
  const int code =
      Create(problems, count, algorithm, stream, &AttndPlan::backward, plan);
  if (*plan != nullptr) (*plan)->deterministic = deterministic != 0;
  return code;
}

int attnd_plan_enqueue(AttndPlan* plan, AttndEnqueued* enqueued) {
  return Enqueue(*plan, plan->size(), enqueued);
}

int attnd_plan_enqueue_each(AttndPlan* plan, AttndEnqueued* enqueued) {
  return Enqueue(*plan, 1, enqueued);
}

void attnd_plan_recycle(AttndPlan* plan) { plan->workspace.Recycle(); }

void attnd_plan_destroy(AttndPlan* plan) { delete plan; }

const char* attnd_last_error(void) { return last_error.c_str(); }

}  // extern "C"
