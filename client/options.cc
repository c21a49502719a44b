#include <cmath>

#include "absl/strings/str_cat.h"
#include "attnd/client.h"
#include "proto/wire/codec.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

constexpr absl::Duration kLongest = absl::Hours(24);

absl::Status CheckDuration(const char* field, absl::Duration value,
                           absl::Duration shortest = absl::Milliseconds(1)) {
  if (value >= shortest && value <= kLongest) return absl::OkStatus();
  return wire::FieldError(
      field, absl::StrCat(absl::FormatDuration(value), " is not within ",
                          absl::FormatDuration(shortest), " to 24h"));
}

absl::Status CheckRange(const char* field, int64_t value, int64_t low,
                        int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return wire::FieldError(
      field, absl::StrCat(value, " is not within ", low, " to ", high));
}

}  // namespace

absl::Status ClientOptions::Validate() const {
  absl::Status status;
  status.Update(CheckRange("max_message_bytes", max_message_bytes, 1,
                           wire::kMaxMessageBytes));
  status.Update(
      CheckDuration("keepalive_time", keepalive_time, absl::Seconds(1)));
  status.Update(CheckDuration("keepalive_timeout", keepalive_timeout));
  status.Update(CheckRange("max_attempts", max_attempts, 1, 100));
  status.Update(CheckDuration("initial_backoff", initial_backoff));
  status.Update(CheckDuration("max_backoff", max_backoff));
  if (!(retry_budget >= 0 && retry_budget <= 1)) {
    status.Update(wire::FieldError("retry_budget", "is not within 0 to 1"));
  }
  status.Update(CheckRange("connections", connections, 1, 256));
  status.Update(CheckRange("executor_threads", executor_threads, 1, 256));
  status.Update(CheckDuration("busy_poll", busy_poll, absl::ZeroDuration()));
  return status;
}

}  // namespace attnd::client
