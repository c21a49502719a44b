#ifndef ATTND_SERVER_FRONT_ADMITTED_CALLS_H_
#define ATTND_SERVER_FRONT_ADMITTED_CALLS_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace attnd::server {

// Counts the calls that a drain waits for: those that were admitted, and those
// whose refusal has not left yet. Thread-safe.
class AdmittedCalls {
 public:
  void Add() {
    MutexLock lock(mutex_);
    ++count_;
  }
  void Remove() {
    MutexLock lock(mutex_);
    if (--count_ == 0) none_.NotifyAll();
  }
  // False when some were still open at `deadline`, of MonotonicNow().
  bool WaitForNone(absl::Time deadline) {
    MutexLock lock(mutex_);
    return none_.WaitUntil(
        lock, deadline,
        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ == 0; });
  }

 private:
  Mutex mutex_;
  Condition none_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_ADMITTED_CALLS_H_
