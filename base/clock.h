#ifndef ATTND_BASE_CLOCK_H_
#define ATTND_BASE_CLOCK_H_

// The clock of deadlines, waits and durations. Nobody sets it, while a wall
// clock that is set back or forward would stretch or cut them all.

#include <chrono>

#include "absl/time/time.h"

namespace attnd {

// Grows by one second a second. Only differences mean something, within one
// process: it is no time of day, and absl::Now() is on another clock.
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace attnd

#endif  // ATTND_BASE_CLOCK_H_
