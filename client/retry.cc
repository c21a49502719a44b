#include "client/retry.h"

#include <algorithm>

#include "proto/wire/status.h"

namespace attnd::client {

bool IsRetryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || (absl::IsResourceExhausted(status) &&
                                         wire::RetryDelay(status).has_value());
}

std::optional<absl::Duration> RetryDelay(const RetryPolicy& policy,
                                         const absl::Status& status,
                                         int attempt, absl::Duration time_left,
                                         double random) {
  if (attempt >= policy.max_attempts || !IsRetryable(status)) {
    return std::nullopt;
  }
  absl::Duration backoff = policy.initial_backoff;
  for (int i = 1; i < attempt && backoff < policy.max_backoff; ++i) {
    backoff *= 2;
  }
  backoff = std::min(backoff, policy.max_backoff);

  absl::Duration delay = backoff * (0.5 + 0.5 * random);
  if (const auto asked = wire::RetryDelay(status)) {
    if (*asked > kMaxServerDelay) return std::nullopt;
    // Later than asked, never earlier, and not all at once.
    delay = std::max(*asked, absl::ZeroDuration()) + backoff * random;
  }
  if (delay >= time_left) return std::nullopt;
  return delay;
}

void RetryBudget::AddCall() {
  MutexLock lock(mutex_);
  tokens_ = std::min(kCapacity, tokens_ + ratio_);
}

bool RetryBudget::TakeRetry() {
  MutexLock lock(mutex_);
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

}  // namespace attnd::client
