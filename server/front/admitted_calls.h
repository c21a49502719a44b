#ifndef ATTND_SERVER_FRONT_ADMITTED_CALLS_H_
#define ATTND_SERVER_FRONT_ADMITTED_CALLS_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/time/time.h"
#include "base/clock.h"

namespace attnd::server {

// Counts admitted calls that the transport is not done with. Thread-safe.
class AdmittedCalls {
 public:
  void Add() {
    std::lock_guard lock(mutex_);
    ++count_;
  }
  void Remove() {
    std::lock_guard lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }
  // False when some were still open at `deadline`, of MonotonicNow().
  bool WaitForNone(absl::Time deadline) {
    std::unique_lock lock(mutex_);
    return WaitUntil(none_, lock, deadline, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  int64_t count_ = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_ADMITTED_CALLS_H_
