#include "client/executor.h"

#include <algorithm>
#include <utility>

namespace attnd::client {

// Notifies under the lock: once it is released, the task may end the call and
// with it this queue.
void TaskQueue::Post(Task task) {
  std::lock_guard<std::mutex> lock(mutex_);
  ready_.push_back(std::move(task));
  wake_.notify_one();
}

void TaskQueue::PostAfter(absl::Duration delay, Task task) {
  // Far below what a time_point can hold.
  delay = std::clamp(delay, absl::ZeroDuration(), absl::Hours(24 * 365));
  const Clock::time_point due = Clock::now() + absl::ToChronoNanoseconds(delay);
  std::lock_guard<std::mutex> lock(mutex_);
  timers_.emplace(due, std::move(task));
  wake_.notify_one();
}

void TaskQueue::CollectDue() {
  if (timers_.empty()) return;
  const Clock::time_point now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    ready_.push_back(std::move(timers_.begin()->second));
    timers_.erase(timers_.begin());
  }
}

bool TaskQueue::RunOne() {
  Task task;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      CollectDue();
      if (!ready_.empty()) break;
      if (closed_) return false;
      if (timers_.empty()) {
        wake_.wait(lock);
      } else {
        const Clock::time_point due = timers_.begin()->first;
        wake_.wait_until(lock, due);
      }
    }
    task = std::move(ready_.front());
    ready_.pop_front();
    // A timer that came due put several tasks here with one wake-up.
    if (!ready_.empty()) wake_.notify_one();
  }
  std::move(task)();
  return true;
}

void TaskQueue::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  wake_.notify_all();
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
