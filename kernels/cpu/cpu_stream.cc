#include "kernels/cpu/cpu_stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/head_slice.h"
#include "kernels/cpu/words_choice.h"
#include "kernels/give_way.h"
#include "kernels/reference/reference.h"

namespace attnd::cpu {
namespace {

// Work that one thread ends sooner than another could take part: some tens of
// microseconds.
constexpr double kInlineFlops = 2e6;
// Work of some milliseconds, in which the caller takes part.
constexpr double kHelpFlops = 1e9;

// The reference computes scores one by one: at least 16 times slower. It only
// decides which threads run a group; what a request is charged for it, the
// backend's CostFlops measures more closely.
constexpr double kReferenceSlowdown = 16;

// Calls run(tasks) for the turns of the plan's waves.
template <class Run>
void ForEachTurn(const FlashPlan& plan, Run run) {
  for (const FlashWave& wave : plan.waves) {
    for (const std::vector<FlashTask>& tasks : wave.turns) run(tasks);
  }
}

double TotalFlops(const FlashPlan& plan) {
  double flops = 0;
  ForEachTurn(plan, [&](const std::vector<FlashTask>& tasks) {
    for (const FlashTask& task : tasks) flops += task.flops;
  });
  return flops;
}

// Tasks that a thread takes at a time: several if they are small, but few
// enough that all threads end together. The largest task comes first.
int64_t TasksAtOnce(absl::Span<const FlashTask> tasks, int threads) {
  if (tasks.empty()) return 1;
  constexpr int64_t kTimes = 8;  // that a thread takes some
  const double small = kInlineFlops / std::max(1.0, tasks.front().flops);
  const int64_t most = static_cast<int64_t>(tasks.size()) / (kTimes * threads);
  return static_cast<int64_t>(
      std::clamp<double>(small, 1, std::max<double>(1, most)));
}

// Adds the time it lives.
class ScopedTimer {
 public:
  explicit ScopedTimer(absl::Duration& total) : total_(total) {}
  ~ScopedTimer() { total_ += absl::FromChrono(Clock::now() - start_); }

 private:
  using Clock = std::chrono::steady_clock;
  absl::Duration& total_;
  const Clock::time_point start_ = Clock::now();
};

// What the reference spends on a problem, in the fast kernels' FLOPs: it visits
// every pair whatever the mask hides. A pair costs an exponential, a row and a
// column something even when there is nothing to pair them with.
double ReferenceFlops(Op op, const Problem& p) {
  if (!HasOutputs(op, p)) return 0;
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

template <class Args>
double ReferenceFlops(Op op, absl::Span<const Args> group) {
  double flops = 0;
  for (const Args& args : group) flops += ReferenceFlops(op, args.problem);
  return flops;
}

}  // namespace

absl::StatusOr<std::byte*> CpuStream::Allocate(int64_t bytes) {
  std::byte* memory = arena_.Allocate(bytes);
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes of input"));
  }
  return memory;
}

absl::StatusOr<std::byte*> CpuStream::MapOutput(HostSpan host) {
  return host.data();
}

absl::Status CpuStream::Upload(absl::Span<const ConstHostSpan> from,
                               std::byte* to) {
  const ScopedTimer timer(times_.upload);
  for (const ConstHostSpan& span : from) {
    if (span.empty()) continue;
    std::memcpy(to, span.data(), span.size());
    to += span.size();
  }
  return absl::OkStatus();
}

absl::Status CpuStream::Forward(absl::Span<const ForwardArgs> group,
                                const GroupOptions& options) {
  const ScopedTimer timer(times_.compute);
  if (options.algorithm == Algorithm::kAuto) {
    return FlashForward(group);
  }
  ReferenceForward(group, options.algorithm);
  return absl::OkStatus();
}

absl::Status CpuStream::Backward(absl::Span<const BackwardArgs> group,
                                 const GroupOptions& options) {
  const ScopedTimer timer(times_.compute);
  if (options.algorithm == Algorithm::kAuto) {
    return FlashBackward(group);
  }
  ReferenceBackward(group, options.algorithm);
  return absl::OkStatus();
}

absl::Status CpuStream::Download(const std::byte*, HostSpan) {
  return absl::OkStatus();
}

absl::Status CpuStream::Use(std::shared_ptr<DeviceBuffer> buffer) {
  buffers_.push_back(std::move(buffer));
  return absl::OkStatus();
}

void CpuStream::Reset() {
  buffers_.clear();
  marks_ = 0;
  arena_.Reset();
}

absl::StatusOr<PhaseTimes> CpuStream::Wait() {
  return std::exchange(times_, PhaseTimes());
}

absl::Status CpuStream::RunFlash(FlashPlan& plan, RunTask run) {
  if (const int64_t floats = plan.workspace_floats(); floats > 0) {
    std::byte* memory =
        workspace_.Allocate(floats * static_cast<int64_t>(sizeof(float)));
    if (memory == nullptr) {
      return absl::ResourceExhaustedError("no memory for the kernels' parts");
    }
    plan.Place(reinterpret_cast<float*>(memory));
  }
  if (const double flops = TotalFlops(plan); flops > kInlineFlops) {
    RunOnPool(plan, flops <= kHelpFlops, run);
  } else {
    ForEachTurn(plan, [&](const std::vector<FlashTask>& tasks) {
      for (const FlashTask& task : tasks) run(task, scratch_);
    });
  }
  workspace_.Reset();
  return absl::OkStatus();
}

void CpuStream::RunOnPool(const FlashPlan& plan, bool help, RunTask run) {
  ThreadPool& pool = compute_.pool;
  std::vector<absl::Span<const FlashTask>> batches;  // for a thread at a time
  std::vector<int64_t> turns;                        // batches of each
  ForEachTurn(plan, [&](absl::Span<const FlashTask> tasks) {
    const size_t before = batches.size();
    const size_t at_once = TasksAtOnce(tasks, pool.threads());
    for (size_t i = 0; i < tasks.size(); i += at_once) {
      batches.push_back(tasks.subspan(i, at_once));
    }
    turns.push_back(static_cast<int64_t>(batches.size() - before));
  });
  pool.ParallelFor(turns, help, [&](int64_t batch, int worker) {
    const bool here = worker == pool.threads();
    Scratch& scratch = here ? scratch_ : compute_.scratch[worker];
    for (const FlashTask& task : batches[batch]) run(task, scratch);
  });
}

absl::Status CpuStream::FlashForward(absl::Span<const ForwardArgs> group) {
  FlashPlan plan = PlanForward(group, compute_.pool.threads());
  ChooseWords(group, compute_.pool, plan);
  return RunFlash(plan, [&](const FlashTask& task, Scratch& scratch) {
    const ForwardArgs& args = group[task.problem];
    if (!attnd::Proceed(args.problem)) return;
    switch (task.kind) {
      case FlashTask::Kind::kPackKv:
        return RunFlashPackKv(args, task, scratch);
      case FlashTask::Kind::kMerge:
        return RunFlashMerge(args, task, scratch);
      case FlashTask::Kind::kEmpty:
        return ClearForward(args, task);
      default:
        return RunFlashForward(args, task, scratch);
    }
  });
}

absl::Status CpuStream::FlashBackward(absl::Span<const BackwardArgs> group) {
  FlashPlan plan = PlanBackward(group, compute_.pool.threads());
  ChooseWords(group, compute_.pool, plan);
  return RunFlash(plan, [&](const FlashTask& task, Scratch& scratch) {
    const BackwardArgs& args = group[task.problem];
    if (!attnd::Proceed(args.problem)) return;
    switch (task.kind) {
      case FlashTask::Kind::kPackQ:
        return RunFlashPackQ(args, task);
      case FlashTask::Kind::kSum:
        return RunFlashSum(args, task, plan.Slabs(task));
      case FlashTask::Kind::kEmpty:
        return ClearBackward(args, task);
      default:
        return RunFlashSlab(args, task, plan.Slabs(task), scratch);
    }
  });
}

void CpuStream::RunReference(double flops, int64_t tasks,
                             ThreadPool::Task run) {
  if (flops <= kInlineFlops) {
    for (int64_t i = 0; i < tasks; ++i) run(i, compute_.pool.threads());
  } else {
    compute_.pool.ParallelFor({tasks}, flops <= kHelpFlops, run);
  }
}

// The reference's only error is CANCELLED, which leaves the outputs undefined
// and the device as it was.
void CpuStream::ReferenceForward(absl::Span<const ForwardArgs> group,
                                 Algorithm algorithm) {
  const double flops = ReferenceFlops(Op::kForward, group);
  for (const ForwardArgs& args : group) {
    if (!HasOutputs(Op::kForward, args.problem)) continue;
    const int64_t heads = args.problem.q_heads;
    RunReference(flops, args.problem.batch * heads, [&](int64_t i, int) {
      if (!attnd::Proceed(args.problem)) return;
      const HeadSlice slice(args, i / heads, i % heads);
      reference::Forward(slice.forward(), algorithm).IgnoreError();
    });
  }
}

void CpuStream::ReferenceBackward(absl::Span<const BackwardArgs> group,
                                  Algorithm algorithm) {
  const double flops = ReferenceFlops(Op::kBackward, group);
  for (const BackwardArgs& args : group) {
    if (!HasOutputs(Op::kBackward, args.problem)) continue;
    const int64_t heads = args.problem.kv_heads;
    RunReference(flops, args.problem.batch * heads, [&](int64_t i, int) {
      if (!attnd::Proceed(args.problem)) return;
      const HeadSlice slice(args, i / heads, i % heads);
      reference::Backward(slice.backward(), algorithm).IgnoreError();
    });
  }
}

}  // namespace attnd::cpu
