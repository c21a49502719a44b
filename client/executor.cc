#include "client/executor.h"

#include <algorithm>
#include <utility>

namespace attnd::client {

// Notifies under the lock: once it is released, the task may end the call and
// with it this queue.
void TaskQueue::Post(Task task) {
  MutexLock lock(mutex_);
  ready_.push_back(std::move(task));
  wake_.NotifyOne();
}

void TaskQueue::PostAfter(absl::Duration delay, Task task) {
  // Far below what the system's clock can hold.
  delay = std::clamp(delay, absl::ZeroDuration(), absl::Hours(24 * 365));
  const absl::Time due = Now() + delay;
  MutexLock lock(mutex_);
  timers_.emplace(due, std::move(task));
  wake_.NotifyOne();
}

void TaskQueue::CollectDue() {
  if (timers_.empty()) return;
  const absl::Time now = Now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    ready_.push_back(std::move(timers_.begin()->second));
    timers_.erase(timers_.begin());
  }
}

bool TaskQueue::RunOne() {
  Task task;
  {
    MutexLock lock(mutex_);
    for (;;) {
      CollectDue();
      if (!ready_.empty()) break;
      if (closed_) return false;
      wake_.WaitUntil(lock, timers_.empty() ? absl::InfiniteFuture()
                                            : timers_.begin()->first);
    }
    task = std::move(ready_.front());
    ready_.pop_front();
    // A timer that came due put several tasks here with one wake-up.
    if (!ready_.empty()) wake_.NotifyOne();
  }
  std::move(task)();
  return true;
}

void TaskQueue::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  wake_.NotifyAll();
}

ThreadExecutor::ThreadExecutor(int threads) {
  threads_.reserve(threads);
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] {
      while (queue_.RunOne()) {
      }
    });
  }
}

ThreadExecutor::~ThreadExecutor() {
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace attnd::client
