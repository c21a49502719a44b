#ifndef ATTND_TESTS_NOTIFICATION_H_
#define ATTND_TESTS_NOTIFICATION_H_

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace attnd {

// As absl::Notification, which the thread sanitizer does not understand in
// Debian's build. Thread-safe; once, and for good.
class Notification {
 public:
  void Notify() {
    MutexLock lock(mutex_);
    notified_ = true;
    changed_.NotifyAll();
  }
  bool HasBeenNotified() const {
    MutexLock lock(mutex_);
    return notified_;
  }
  void WaitForNotification() const {
    MutexLock lock(mutex_);
    changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return notified_;
    });
  }

 private:
  mutable Mutex mutex_;
  mutable Condition changed_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace attnd

#endif  // ATTND_TESTS_NOTIFICATION_H_
