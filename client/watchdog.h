#ifndef ATTND_CLIENT_WATCHDOG_H_
#define ATTND_CLIENT_WATCHDOG_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/executor.h"

namespace attnd::client {

// Something that ought to be gone, soon after it is due.
class Watched {
 public:
  virtual ~Watched() = default;
  // On the executor's clock. May come nearer, to now; infinite: never.
  virtual absl::Time due() const = 0;
  // Runs at most once, on the executor's thread: it is overdue.
  virtual void Break() = 0;
};

// Breaks what is still there `grace` after it was due, at most a quarter of
// that later, and 0.25 s. It looks now and then while there is anything to
// watch, so that something which comes and goes costs a push to a list and no
// timer. Thread-safe.
class Watchdog {
 public:
  // `executor` must end before this does.
  Watchdog(Executor& executor, absl::Duration grace);

  void Watch(std::weak_ptr<Watched> watched);

 private:
  void Look();

  Executor& executor_;
  const absl::Duration grace_;
  const absl::Duration interval_;
  Mutex mutex_;
  std::vector<std::weak_ptr<Watched>> watched_ ABSL_GUARDED_BY(mutex_);
  bool looking_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_WATCHDOG_H_
