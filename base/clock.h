#ifndef ATTND_BASE_CLOCK_H_
#define ATTND_BASE_CLOCK_H_

// The clock of deadlines, waits and durations. Nobody sets it, while a wall
// clock that is set back or forward would stretch or cut them all.

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace attnd {

// Grows by one second a second. Only differences mean something, within one
// process: it is no time of day, and absl::Now() is on another clock.
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// Waits until `predicate()` is true or `deadline`, of MonotonicNow(), has
// passed, and returns what the predicate says then.
template <typename Predicate>
bool WaitUntil(std::condition_variable& condition,
               std::unique_lock<std::mutex>& lock, absl::Time deadline,
               Predicate predicate) {
  using Clock = std::chrono::steady_clock;
  if (deadline == absl::InfiniteFuture()) {
    condition.wait(lock, predicate);
    return true;
  }
  const Clock::time_point until(std::chrono::duration_cast<Clock::duration>(
      absl::ToChronoNanoseconds(deadline - absl::UnixEpoch())));
  return condition.wait_until(lock, until, predicate);
}

}  // namespace attnd

#endif  // ATTND_BASE_CLOCK_H_
