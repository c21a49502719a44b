#ifndef ATTND_KERNELS_CPU_JOB_H_
#define ATTND_KERNELS_CPU_JOB_H_

// A group of problems as tasks for the threads of a pool. Views the group's
// arguments, which must outlive it. What a task writes, and in which order it
// adds, does not depend on when it runs, as long as its turn has come.

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tile.h"

namespace attnd::cpu {

class Job {
 public:
  using Pause = absl::FunctionRef<bool()>;

  virtual ~Job() = default;

  // What it costs, as FLOPs that the fast kernels would do in the same time.
  double flops() const { return flops_; }
  // For ThreadPool::Tasks.
  absl::Span<const int64_t> turns() const { return turns_; }
  // Several at once, each with a scratch of its own. False: it has stopped in
  // the middle, as pause() was true, and is to be run again, with any scratch.
  virtual bool Run(int64_t task, Scratch& scratch, Pause pause) = 0;
  virtual double TaskFlops(int64_t task) const = 0;
  // What is left of one that has stopped.
  virtual double FlopsLeft(int64_t task) const = 0;

 protected:
  double flops_ = 0;
  std::vector<int64_t> turns_;
};

// The tiled kernels. Its tasks are those of its plan, several at a time if they
// are small.
class FlashJob final : public Job {
 public:
  // Looks through inputs on `pool`.
  FlashJob(absl::Span<const ForwardArgs> group, ThreadPool& pool);
  FlashJob(absl::Span<const BackwardArgs> group, ThreadPool& pool);

  // What the tasks share, to be given to them before any runs.
  int64_t workspace_floats() const { return plan_.workspace_floats(); }
  void Place(float* memory) { plan_.Place(memory); }
  // All of it, on the calling thread.
  void RunHere(Scratch& scratch) const;
  // Before the first Run: cuts it into tasks for `threads`.
  void Cut(int threads);

  bool Run(int64_t task, Scratch& scratch, Pause pause) override;
  double TaskFlops(int64_t task) const override;
  double FlopsLeft(int64_t task) const override;

 private:
  void CountFlops();
  bool IsSlab(int64_t task) const;
  void Run(const FlashTask& task, Scratch& scratch) const;
  void RunForward(const FlashTask& task, Scratch& scratch) const;
  void RunBackward(const FlashTask& task, Scratch& scratch) const;

  absl::Span<const ForwardArgs> forward_;  // one of the two is empty
  absl::Span<const BackwardArgs> backward_;
  FlashPlan plan_;
  std::vector<absl::Span<const FlashTask>> batches_;  // by task
  // By task, of a slab alone: the first of its columns that has not been done.
  std::vector<int64_t> first_;
};

// The papers' algorithms, a head to a task, one problem after another.
class ReferenceJob final : public Job {
 public:
  ReferenceJob(absl::Span<const ForwardArgs> group, Algorithm algorithm);
  ReferenceJob(absl::Span<const BackwardArgs> group, Algorithm algorithm);

  bool Run(int64_t task, Scratch& scratch, Pause pause) override;
  double TaskFlops(int64_t task) const override;
  double FlopsLeft(int64_t task) const override { return TaskFlops(task); }
  int64_t tasks() const { return ends_.empty() ? 0 : ends_.back(); }

 private:
  template <class Args>
  void Cut(Op op, absl::Span<const Args> group);
  // The problem whose head task `task` is.
  int64_t ProblemOf(int64_t task) const;

  absl::Span<const ForwardArgs> forward_;  // one of the two is empty
  absl::Span<const BackwardArgs> backward_;
  const Algorithm algorithm_;
  std::vector<int64_t> ends_;  // by problem, one past its last task
  std::vector<double> problem_flops_;
};

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_JOB_H_
