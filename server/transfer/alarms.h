#ifndef ATTND_SERVER_TRANSFER_ALARMS_H_
#define ATTND_SERVER_TRANSFER_ALARMS_H_

// What cuts a call that has come to a halt: functions to call at given times.
// No gRPC in here.

#include <cstdint>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace attnd::server {

// Thread-safe. One thread of its own, which nearly every alarm is cancelled
// without waking.
class Alarms {
 public:
  // Which alarm; the default is none.
  using Id = std::pair<absl::Time, uint64_t>;

  Alarms();
  // Nothing rings any more; waits for what does. Alarms that are left are
  // dropped.
  ~Alarms();
  Alarms(const Alarms&) = delete;
  Alarms& operator=(const Alarms&) = delete;

  // Calls `ring` once, on the alarms' thread, when `due` of MonotonicNow() has
  // come. It must not block, and may set and cancel alarms.
  Id Set(absl::Time due, absl::AnyInvocable<void()> ring);
  // Does not wait for one that rings now. Does nothing for one that has rung,
  // for one cancelled before and for none.
  void Cancel(const Id& id);

 private:
  void Loop();

  Mutex mutex_;
  Condition changed_;
  absl::btree_map<Id, absl::AnyInvocable<void()>> alarms_
      ABSL_GUARDED_BY(mutex_);
  // When the thread wakes up by itself. An alarm that is cancelled leaves it as
  // it is, and while alarms are being set it is soon: a few wake-ups too many,
  // where otherwise each call would cost one, and would have to cause it.
  absl::Time wakes_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TRANSFER_ALARMS_H_
