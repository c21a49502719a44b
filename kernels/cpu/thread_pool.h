#ifndef ATTND_KERNELS_CPU_THREAD_POOL_H_
#define ATTND_KERNELS_CPU_THREAD_POOL_H_

// The backend's compute threads. Several callers may each have a job running:
// threads take tasks from the jobs in turn, so that a small job never waits
// for a long one to end, and no more threads compute than there are cores.

#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kernels/cpu/core_spread.h"

namespace attnd::cpu {

// Thread-safe.
class ThreadPool {
 public:
  // `task` in [0, tasks); `worker` in [0, threads()), or threads() on the
  // thread that called: no two tasks of a job, or of the pool's own threads,
  // run at once with the same worker.
  using Task = absl::FunctionRef<void(int64_t task, int worker)>;

  // Starts `threads` >= 1 threads, or throws std::system_error and starts none.
  // Their tasks should GiveWay now and then.
  explicit ThreadPool(int threads);
  // No job may be running.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(threads_.size()); }

  // A job's tasks, and how far it is. `turns` has the number of tasks of each
  // turn, one after another: none starts before all of the turn before have
  // ended.
  struct Tasks {
    absl::Span<const int64_t> turns;  // those that are yet to open
    int64_t next = 0;                 // the first task that nobody has taken
    int64_t open = 0;                 // the end of the turn
    std::vector<int64_t> begun = {};  // taken, but they stopped in the middle
  };

  // Runs every task once, started in ascending order, and returns when all
  // have ended. Must not be called from a task.
  //
  // With `help` the caller takes tasks too: a short job then never waits for
  // the tasks of a long one to end before it begins. A long job should not: its
  // caller would compete with the threads that talk to clients.
  void ParallelFor(absl::Span<const int64_t> turns, bool help, Task run);

  // As Task, of one that may stop in the middle once pause() is true. Whether
  // it has ended; if not, it is called again.
  using Part = absl::FunctionRef<bool(int64_t task, int worker)>;

  // As ParallelFor for what is left of `tasks`, until all have ended, or
  // pause() was true after one or one has stopped: no more are started then,
  // and those that run end or stop. Whether all have ended; if not, a later
  // call goes on from there. A call runs at least one task, or a part of it.
  // `pause` is called on the threads that run tasks, and must not block.
  bool RunUntil(absl::FunctionRef<bool()> pause, bool help, Part run,
                Tasks& tasks);

 private:
  // A call of RunUntil. All but `run` and `pause` is the pool's, under its
  // mutex.
  struct Job {
    Part run;
    absl::FunctionRef<bool()> pause;
    Tasks tasks;
    int64_t running = 0;
    bool paused = false;
    Condition changed;  // the turn, or the call has ended

    int64_t left() const {  // of the turn, to be taken
      return tasks.open - tasks.next + static_cast<int64_t>(tasks.begun.size());
    }
    bool has_task() const { return !paused && left() > 0; }
    bool turn_ended() const { return !has_task() && running == 0; }
  };

  void Stop();
  void Work(int worker);
  // Once a turn has ended: lets threads take the tasks of the next one.
  void OpenTurn(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  enum class End { kGoOn, kPause, kStopped };
  // Takes the job's next task: the caller unlocks, calls Run, locks again and
  // calls EndTask with what Run has returned.
  int64_t TakeTask(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  End Run(const Job& job, int64_t task, int worker) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndTask(Job& job, int64_t task, End end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  Condition work_;  // there are jobs, or the pool stops
  // Those with tasks to take, in turn.
  std::deque<Job*> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CoreSpread cores_;
  std::vector<std::thread> threads_;
};

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_THREAD_POOL_H_
