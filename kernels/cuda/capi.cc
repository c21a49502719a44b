#include "kernels/cuda/capi.h"

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cuda/forward.h"
#include "kernels/cuda/workspace.h"

using attnd::Algorithm;
using attnd::DType;
using attnd::ForwardArgs;
using attnd::KvSegment;
using attnd::Problem;

struct AttndPlan {
  explicit AttndPlan(void* stream)
      : workspace(static_cast<cudaStream_t>(stream),
                  std::numeric_limits<int64_t>::max()) {}

  std::vector<KvSegment> segments;  // one of each problem
  std::vector<ForwardArgs> group;
  Algorithm algorithm = Algorithm::kAuto;
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

absl::Status Check(const AttndForwardProblem& p) {
  const auto refuse = [](absl::string_view why) {
    return absl::InvalidArgumentError(why);
  };
  if (p.batch < 0 || p.q_len < 0 || p.kv_len < 0) return refuse("a length < 0");
  if (p.kv_heads < 1 || p.q_heads < 1 || p.q_heads % p.kv_heads != 0) {
    return refuse("q_heads must be a multiple of kv_heads");
  }
  for (int64_t dim : {p.head_dim, p.value_dim}) {
    if (dim < 1 || dim > attnd::kMaxHeadDim) return refuse("dim out of range");
  }
  if (p.left < -1 || p.right < -1) return refuse("window < -1");
  if (p.dtype < ATTND_F32 || p.dtype > ATTND_BF16) return refuse("dtype");
  for (const AttndTensor& t : {p.q, p.k, p.v, p.o}) {
    if (t.data == nullptr) return refuse("a tensor is NULL");
  }
  return absl::OkStatus();
}

// A view of either kind.
template <class View>
View MakeView(const AttndTensor& t, DType dtype) {
  return {t.data, dtype, t.batch_stride, t.token_stride, t.head_stride};
}

KvSegment MakeSegment(const AttndForwardProblem& from) {
  const DType dtype = static_cast<DType>(from.dtype);
  KvSegment segment;
  segment.k = MakeView<attnd::ConstTensorView>(from.k, dtype);
  segment.v = MakeView<attnd::ConstTensorView>(from.v, dtype);
  segment.len = from.kv_len;
  return segment;
}

// `segment` must outlive the result.
ForwardArgs MakeArgs(const AttndForwardProblem& from,
                     const KvSegment& segment) {
  const DType dtype = static_cast<DType>(from.dtype);
  ForwardArgs args;
  Problem& p = args.problem;
  p.batch = from.batch;
  p.q_len = from.q_len;
  p.q_heads = from.q_heads;
  p.kv_heads = from.kv_heads;
  p.head_dim = from.head_dim;
  p.value_dim = from.value_dim;
  p.q = MakeView<attnd::ConstTensorView>(from.q, dtype);
  p.kv = {&segment, 1};
  p.mask = {.causal = from.causal != 0, .left = from.left, .right = from.right};
  p.scale = from.scale;
  args.o = MakeView<attnd::TensorView>(from.o, dtype);
  args.lse = {from.lse, from.q_heads * from.q_len, from.q_len};
  return args;
}

absl::Status Fill(absl::Span<const AttndForwardProblem> problems,
                  AttndPlan& plan) {
  for (const AttndForwardProblem& p : problems) {
    if (absl::Status s = Check(p); !s.ok()) return s;
    if (p.dtype != problems[0].dtype || p.head_dim != problems[0].head_dim ||
        p.value_dim != problems[0].value_dim) {
      return absl::InvalidArgumentError("a group shares dtype and dims");
    }
    plan.segments.push_back(MakeSegment(p));
  }
  for (size_t i = 0; i < problems.size(); ++i) {
    plan.group.push_back(MakeArgs(problems[i], plan.segments[i]));
    absl::Status status =
        attnd::cuda::SupportsForward(plan.group.back().problem, plan.algorithm);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Enqueues the plan's problems in calls of `size`.
int Enqueue(AttndPlan& plan, size_t size, AttndEnqueued* enqueued) {
  AttndEnqueued sum = {};
  const auto start = std::chrono::steady_clock::now();
  const absl::Span<const ForwardArgs> group = plan.group;
  for (size_t first = 0; first < group.size(); first += size) {
    const auto counts = attnd::cuda::EnqueueForward(
        group.subspan(first, size), plan.algorithm, plan.workspace);
    if (!counts.ok()) return Report(counts.status());
    sum.kernels += counts->kernels;
    sum.copies += counts->copies;
  }
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
  *plan = nullptr;
  if (count < 1 || problems == nullptr) {
    return Report(absl::InvalidArgumentError("a plan needs a problem"));
  }
  if (algorithm < ATTND_AUTO || algorithm > ATTND_FLASH_ATTENTION_2) {
    return Report(absl::InvalidArgumentError("algorithm"));
  }
  auto made = std::make_unique<AttndPlan>(stream);
  made->algorithm = static_cast<Algorithm>(algorithm);
  if (absl::Status s = Fill({problems, static_cast<size_t>(count)}, *made);
      !s.ok()) {
    return Report(s);
  }
  *plan = made.release();
  return 0;
}

int attnd_plan_enqueue(AttndPlan* plan, AttndEnqueued* enqueued) {
  return Enqueue(*plan, plan->group.size(), enqueued);
}

int attnd_plan_enqueue_each(AttndPlan* plan, AttndEnqueued* enqueued) {
  return Enqueue(*plan, 1, enqueued);
}

void attnd_plan_recycle(AttndPlan* plan) { plan->workspace.Recycle(); }

void attnd_plan_destroy(AttndPlan* plan) { delete plan; }

const char* attnd_last_error(void) { return last_error.c_str(); }

}  // extern "C"
