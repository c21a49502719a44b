#include "server/transfer/alarms.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace attnd::server {
namespace {

// No later than the soonest alarm that calls set, MessageWatch's.
constexpr absl::Duration kSoon = absl::Milliseconds(3);

}  // namespace

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
  uint64_t seen = 0;  // the last alarm that was set, at the last look
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
    if (std::exchange(seen, last_) != last_) {
      wakes_ = std::min(wakes_, now + kSoon);
    }
    const absl::Time until = wakes_;
    changed_.WaitUntil(lock, until,
                       [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                         return ends_ || wakes_ < until;
                       });
  }
}

}  // namespace attnd::server
