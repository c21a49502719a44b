#include <algorithm>
#include <cstddef>

#include "kernels/cpu/flash.h"
#include "kernels/cpu/job.h"
#include "kernels/cpu/words_choice.h"
#include "kernels/give_way.h"

namespace attnd::cpu {
namespace {

// Tasks of fewer FLOPs are taken several at a time.
constexpr double kSmallFlops = 2e6;

// Calls run(tasks) for the turns of the plan's waves.
template <class Run>
void ForEachTurn(const FlashPlan& plan, Run run) {
  for (const FlashWave& wave : plan.waves) {
    for (const std::vector<FlashTask>& tasks : wave.turns) run(tasks);
  }
}

double Flops(absl::Span<const FlashTask> tasks) {
  double flops = 0;
  for (const FlashTask& task : tasks) flops += task.flops;
  return flops;
}

// Tasks that a thread takes at a time: several if they are small, but few
// enough that all threads end together. The largest task comes first.
int64_t TasksAtOnce(absl::Span<const FlashTask> tasks, int threads) {
  if (tasks.empty()) return 1;
  constexpr int64_t kTimes = 8;  // that a thread takes some
  const double small = kSmallFlops / std::max(1.0, tasks.front().flops);
  const int64_t most = static_cast<int64_t>(tasks.size()) / (kTimes * threads);
  return static_cast<int64_t>(
      std::clamp<double>(small, 1, std::max<double>(1, most)));
}

}  // namespace

FlashJob::FlashJob(absl::Span<const ForwardArgs> group, ThreadPool& pool)
    : forward_(group), plan_(PlanForward(group, pool.threads())) {
  ChooseWords(group, pool, plan_);
  CountFlops();
}

FlashJob::FlashJob(absl::Span<const BackwardArgs> group, ThreadPool& pool)
    : backward_(group), plan_(PlanBackward(group, pool.threads())) {
  ChooseWords(group, pool, plan_);
  CountFlops();
}

void FlashJob::CountFlops() {
  ForEachTurn(plan_, [this](absl::Span<const FlashTask> tasks) {
    flops_ += Flops(tasks);
  });
}

void FlashJob::RunHere(Scratch& scratch) const {
  ForEachTurn(plan_, [&](absl::Span<const FlashTask> tasks) {
    for (const FlashTask& task : tasks) Run(task, scratch);
  });
}

void FlashJob::Cut(int threads) {
  ForEachTurn(plan_, [&](absl::Span<const FlashTask> tasks) {
    const size_t before = batches_.size();
    const size_t at_once = TasksAtOnce(tasks, threads);
    for (size_t i = 0; i < tasks.size(); i += at_once) {
      batches_.push_back(tasks.subspan(i, at_once));
    }
    turns_.push_back(static_cast<int64_t>(batches_.size() - before));
  });
  first_.resize(batches_.size());
  for (size_t i = 0; i < batches_.size(); ++i) {
    const FlashTask& task = batches_[i].front();
    if (task.kind == FlashTask::Kind::kSlab) {
      first_[i] = plan_.Slabs(task)[task.part].columns.lo;
    }
  }
}

bool FlashJob::IsSlab(int64_t task) const {
  return batches_[task].size() == 1 &&
         batches_[task].front().kind == FlashTask::Kind::kSlab;
}

bool FlashJob::Run(int64_t task, Scratch& scratch, Pause pause) {
  if (!IsSlab(task)) {
    for (const FlashTask& part : batches_[task]) Run(part, scratch);
    return true;
  }
  const FlashTask& slab = batches_[task].front();
  const BackwardArgs& args = backward_[slab.problem];
  if (!Proceed(args.problem)) return true;
  return RunFlashSlab(args, slab, plan_.Slabs(slab), scratch, pause,
                      first_[task]);
}

double FlashJob::TaskFlops(int64_t task) const { return Flops(batches_[task]); }

double FlashJob::FlopsLeft(int64_t task) const {
  if (!IsSlab(task)) return TaskFlops(task);
  const FlashTask& slab = batches_[task].front();
  const Interval columns = plan_.Slabs(slab)[slab.part].columns;
  return slab.flops * static_cast<double>(columns.hi - first_[task]) /
         static_cast<double>(columns.size());
}

void FlashJob::Run(const FlashTask& task, Scratch& scratch) const {
  return forward_.empty() ? RunBackward(task, scratch)
                          : RunForward(task, scratch);
}

void FlashJob::RunForward(const FlashTask& task, Scratch& scratch) const {
  const ForwardArgs& args = forward_[task.problem];
  if (!Proceed(args.problem)) return;
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
}

void FlashJob::RunBackward(const FlashTask& task, Scratch& scratch) const {
  const BackwardArgs& args = backward_[task.problem];
  if (!Proceed(args.problem)) return;
  switch (task.kind) {
    case FlashTask::Kind::kPackQ:
      return RunFlashPackQ(args, task);
    case FlashTask::Kind::kSum:
      return RunFlashSum(args, task, plan_.Slabs(task));
    case FlashTask::Kind::kEmpty:
      return ClearBackward(args, task);
    default: {
      const absl::Span<const Slab> slabs = plan_.Slabs(task);
      int64_t first = slabs[task.part].columns.lo;
      RunFlashSlab(
          args, task, slabs, scratch, [] { return false; }, first);
    }
  }
}

}  // namespace attnd::cpu
