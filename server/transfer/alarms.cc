#include "server/transfer/alarms.h"

#include "base/clock.h"

namespace attnd::server {

Alarms::Alarms() : thread_([this] { Loop(); }) {}

Alarms::~Alarms() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

Alarms::Id Alarms::Set(absl::Time due, absl::AnyInvocable<void()> ring) {
  MutexLock lock(mutex_);
  const Id id(due, ++last_);
  alarms_.emplace(id, std::move(ring));
  if (due < wakes_) {
    wakes_ = due;
    changed_.NotifyAll();
  }
  return id;
}

void Alarms::Cancel(const Id& id) {
  absl::AnyInvocable<void()> ring;  // ends after the lock
  MutexLock lock(mutex_);
  auto found = alarms_.find(id);
  if (found == alarms_.end()) return;
  ring = std::move(found->second);
  alarms_.erase(found);
}

void Alarms::Loop() {
  MutexLock lock(mutex_);
  while (!ends_) {
    const absl::Time now = MonotonicNow();
    if (!alarms_.empty() && alarms_.begin()->first.first <= now) {
      absl::AnyInvocable<void()> ring = std::move(alarms_.begin()->second);
      alarms_.erase(alarms_.begin());
      lock.Unlock();
      ring();
      ring = nullptr;
      lock.Lock();
      continue;
    }
    // Another alarm may have come due while this one rang, or none be left.
    wakes_ =
        alarms_.empty() ? absl::InfiniteFuture() : alarms_.begin()->first.first;
    const absl::Time until = wakes_;
    changed_.WaitUntil(lock, until,
                       [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                         return ends_ || wakes_ < until;
                       });
  }
}

}  // namespace attnd::server
