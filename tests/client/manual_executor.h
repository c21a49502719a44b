#ifndef ATTND_TESTS_CLIENT_MANUAL_EXECUTOR_H_
#define ATTND_TESTS_CLIENT_MANUAL_EXECUTOR_H_

#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "client/executor.h"

namespace attnd::client {

// An executor that a test steps by hand, with time that only the test moves.
class ManualExecutor final : public Executor {
 public:
  absl::Time Now() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return now_;
  }

  void Post(Task task) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ready_.push_back(std::move(task));
  }

  void PostAfter(absl::Duration delay, Task task) override {
    std::lock_guard<std::mutex> lock(mutex_);
    timers_.emplace(now_ + delay, std::move(task));
  }

  // Runs tasks until none is ready; returns how many ran.
  int RunReady() {
    int ran = 0;
    for (;; ++ran) {
      Task task;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (ready_.empty()) return ran;
        task = std::move(ready_.front());
        ready_.pop_front();
      }
      std::move(task)();
    }
  }

  // Moves time forward, running what comes due.
  void Advance(absl::Duration duration) {
    RunReady();
    const absl::Time end = Now() + duration;
    for (;;) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (timers_.empty() || timers_.begin()->first > end) break;
        now_ = timers_.begin()->first;
        ready_.push_back(std::move(timers_.begin()->second));
        timers_.erase(timers_.begin());
      }
      RunReady();
    }
    std::lock_guard<std::mutex> lock(mutex_);
    now_ = end;
  }

  int timers() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int>(timers_.size());
  }

 private:
  mutable std::mutex mutex_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  std::deque<Task> ready_;
  std::multimap<absl::Time, Task> timers_;
};

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_MANUAL_EXECUTOR_H_
