#ifndef ATTND_BASE_MUTEX_H_
#define ATTND_BASE_MUTEX_H_

// std::mutex and std::condition_variable with the annotations that let clang
// check at compile time what each lock guards (-Wthread-safety). absl::Mutex
// has them too, but Debian's build of it hides from the thread sanitizer who
// holds it, which then reports races that are none.
//
//   Mutex mutex_;
//   Condition changed_;  // with mutex_
//   int count_ ABSL_GUARDED_BY(mutex_) = 0;
//
// A function that expects its caller to hold the lock says so:
//   void Add() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
// and so does a lambda that waits for what is guarded, as clang checks it apart
// from the function around it:
//   changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
//     return count_ == 0;
//   });

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace attnd {

// Held by a MutexLock.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a Mutex for as long as it lives, but between Unlock and Lock.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : lock_(mutex.mutex_) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {}

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { lock_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { lock_.unlock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

// What threads wait for that hold the same Mutex; they let go of it meanwhile.
class Condition {
 public:
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

  // Until it is notified, or for no reason: to be called in a loop.
  void Wait(MutexLock& lock) { condition_.wait(lock.lock_); }

  // As Wait, but not after `deadline`, of MonotonicNow().
  void WaitUntil(MutexLock& lock, absl::Time deadline) {
    if (deadline == absl::InfiniteFuture()) return Wait(lock);
    condition_.wait_until(lock.lock_, TimePoint(deadline));
  }

  // Until predicate() is true.
  template <typename Predicate>
  void Wait(MutexLock& lock, Predicate predicate) {
    condition_.wait(lock.lock_, std::move(predicate));
  }

  // Until predicate() is true or `deadline`, of MonotonicNow(), has passed;
  // returns what the predicate says then.
  template <typename Predicate>
  bool WaitUntil(MutexLock& lock, absl::Time deadline, Predicate predicate) {
    if (deadline == absl::InfiniteFuture()) {
      condition_.wait(lock.lock_, std::move(predicate));
      return true;
    }
    return condition_.wait_until(lock.lock_, TimePoint(deadline),
                                 std::move(predicate));
  }

 private:
  using Clock = std::chrono::steady_clock;
  static Clock::time_point TimePoint(absl::Time time) {
    return Clock::time_point(std::chrono::duration_cast<Clock::duration>(
        absl::ToChronoNanoseconds(time - absl::UnixEpoch())));
  }

  std::condition_variable condition_;
};

}  // namespace attnd

#endif  // ATTND_BASE_MUTEX_H_
