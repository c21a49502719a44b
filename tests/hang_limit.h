#ifndef ATTND_TESTS_HANG_LIMIT_H_
#define ATTND_TESTS_HANG_LIMIT_H_

// How tests wait. None of them depends on speed: what is waited for comes, on
// however slow a machine, or else there is a bug. How fast it must come is for
// tests/bench/service_bench to say.

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace attnd::testing {

// When a test gives up: it bounds a hang, and nothing else.
inline constexpr absl::Duration kHangLimit = absl::Seconds(60);

// Polls until `done` says so, where nobody tells; false after kHangLimit.
template <typename Done>
bool Eventually(Done done) {
  const absl::Time give_up = MonotonicNow() + kHangLimit;
  while (!done()) {
    if (MonotonicNow() > give_up) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace attnd::testing

#endif  // ATTND_TESTS_HANG_LIMIT_H_
