#ifndef ATTND_SERVER_REGION_KEEPER_H_
#define ATTND_SERVER_REGION_KEEPER_H_

// A thread for what nobody should wait for: memory that is given back, pinned
// or unpinned, which may hold a driver's lock for milliseconds.

#include <cstdint>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace attnd::server {

// Thread-safe. What it is given may outlive whoever gave it, up to Stop.
class Keeper {
 public:
  using Task = absl::AnyInvocable<void()>;

  // RESOURCE_EXHAUSTED: no thread.
  static absl::StatusOr<std::shared_ptr<Keeper>> Start();
  ~Keeper() { Stop(); }

  // Runs `task` soon, after those that were posted before. Never blocks; once
  // the keeper has stopped it runs here.
  void Post(Task task);
  // Runs it at `due`, of MonotonicNow(), or later: whatever is posted goes
  // first. Dropped if the keeper stops before.
  void PostAt(absl::Time due, Task task);

  // Runs what has been posted and drops what is due at a time. Not to be called
  // by a task.
  void Stop();

 private:
  using Order = std::pair<absl::Time, uint64_t>;

  Keeper() = default;
  void Loop();
  void Add(absl::Time due, Task task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  Condition changed_;
  absl::btree_map<Order, Task> tasks_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_KEEPER_H_
