#ifndef ATTND_SERVER_IDENTITY_CALL_RATES_H_
#define ATTND_SERVER_IDENTITY_CALL_RATES_H_

// How many calls a second each client makes, against how many it may.

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "server/work/recent.h"

namespace attnd::server {

// A bucket of tokens for each client, which holds as many as come back in a
// second, but at least one. It is kept as the time at which it will be full:
// one number, and a client of which nothing is known has a full one. So
// whoever has called longest ago may be forgotten, and memory is bounded
// however many addresses there are. Not thread-safe.
class CallRates {
 public:
  static constexpr size_t kRemembered = 1 << 14;

  // Takes a token of `client`'s, whose bucket is filled at `per_second` (> 0).
  // None is there: takes nothing, and returns how long until there will be;
  // otherwise 0.
  absl::Duration Take(const std::string& client, double per_second,
                      absl::Time now);

 private:
  Recent<absl::Time> full_at_{kRemembered};
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_IDENTITY_CALL_RATES_H_
