#include "server/identity/call_rates.h"

#include <algorithm>

namespace attnd::server {

absl::Duration CallRates::Take(const std::string& client, double per_second,
                               absl::Time now) {
  const absl::Duration one = absl::Seconds(1 / per_second);
  const absl::Duration all = std::max(one, absl::Seconds(1));
  const absl::Time* known = full_at_.Find(client);
  absl::Time full_at = known == nullptr ? now : std::max(*known, now);
  // For the rounding of as many as a second allows.
  const absl::Duration slack = one / 16;
  // Empty at most: the rate may have been lower when it was last asked for.
  full_at = std::min(full_at, now + all + slack);
  const absl::Duration wait = full_at + one - (now + all);
  const bool has_one = wait <= slack;
  full_at_.Set(client, has_one ? full_at + one : full_at);
  return has_one ? absl::ZeroDuration() : wait;
}

}  // namespace attnd::server
