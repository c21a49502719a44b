#ifndef ATTND_CLIENT_EXECUTOR_H_
#define ATTND_CLIENT_EXECUTOR_H_

#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace attnd::client {

// Where a call's steps run, and its clock. Thread-safe.
class Executor {
 public:
  using Task = absl::AnyInvocable<void()>;

  virtual ~Executor() = default;
  // Of MonotonicNow(), in a test of its own.
  virtual absl::Time Now() const = 0;
  // Neither blocks nor runs the task before returning. Tasks posted by one
  // thread start in that order.
  virtual void Post(Task task) = 0;
  virtual void PostAfter(absl::Duration delay, Task task) = 0;
};

// A queue of tasks and timers, run by whichever threads call RunOne: an
// asynchronous call's steps by ThreadExecutor's threads, a synchronous call's
// by the thread that waits for it, so that it costs no extra thread hop and
// works inside a callback.
class TaskQueue final : public Executor {
 public:
  absl::Time Now() const override { return MonotonicNow(); }
  void Post(Task task) override;
  void PostAfter(absl::Duration delay, Task task) override;

  // Waits for the next task that is due and runs it. False once closed and
  // nothing is ready; timers that are not due by then never run.
  bool RunOne();
  void Close();

 private:
  void CollectDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  Condition wake_;
  std::deque<Task> ready_ ABSL_GUARDED_BY(mutex_);
  std::multimap<absl::Time, Task> timers_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// A fixed number of threads on one TaskQueue. Destruction runs what is ready,
// drops timers that are not due, and joins; never on one of its own threads.
class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(int threads);
  ~ThreadExecutor() override;

  absl::Time Now() const override { return queue_.Now(); }
  void Post(Task task) override { queue_.Post(std::move(task)); }
  void PostAfter(absl::Duration delay, Task task) override {
    queue_.PostAfter(delay, std::move(task));
  }

 private:
  TaskQueue queue_;
  std::vector<std::thread> threads_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_EXECUTOR_H_
