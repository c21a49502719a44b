#ifndef ATTND_CLIENT_RETRY_H_
#define ATTND_CLIENT_RETRY_H_

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace attnd::client {

struct RetryPolicy {
  int max_attempts = 4;
  absl::Duration initial_backoff = absl::Milliseconds(50);
  absl::Duration max_backoff = absl::Seconds(5);
};

// A server's delay beyond this is not waited for: the call fails instead.
inline constexpr absl::Duration kMaxServerDelay = absl::Minutes(1);

// Whether another attempt may help: UNAVAILABLE, or RESOURCE_EXHAUSTED with a
// delay from the server (without one the request would never fit).
bool IsRetryable(const absl::Status& status);

// How long to wait after attempt number `attempt` (from 1) failed with
// `status`; nullopt: give up. Exponential, spread over its upper half by
// `random` in [0, 1), and never less than what the server asks for. Gives up
// when the next attempt would not start within `time_left`. A pure function.
std::optional<absl::Duration> RetryDelay(const RetryPolicy& policy,
                                         const absl::Status& status,
                                         int attempt, absl::Duration time_left,
                                         double random);

// Keeps retries to a share of calls, so that a server in trouble is not given
// more work by it: a token bucket that every call fills by `ratio` and every
// retry empties by one. It starts full, at kCapacity. Thread-safe.
class RetryBudget {
 public:
  static constexpr double kCapacity = 10;

  explicit RetryBudget(double ratio) : ratio_(ratio) {}

  void AddCall();
  bool TakeRetry();

 private:
  const double ratio_;
  Mutex mutex_;
  double tokens_ ABSL_GUARDED_BY(mutex_) = kCapacity;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_RETRY_H_
