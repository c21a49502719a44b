#include "server/identity/options.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/scheduling/option_range.h"

namespace attnd::server {
namespace {

// Not a number is in no range.
absl::Status Within(absl::string_view flag, double value, double most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return BadOption(flag, absl::StrCat("must be 0 to ", most, ", is ", value));
}

}  // namespace

absl::Status IdentityOptions::Validate() const {
  absl::Status status =
      Within("--max_client_rate", limits.calls_per_second, kMostCallsPerSecond);
  status.Update(
      InRange("--max_client_queue_bytes", limits.queue_bytes, 0, kMostBytes));
  status.Update(
      Within("--max_client_queue_flops", limits.queue_flops, kMostFlops));
  return status;
}

}  // namespace attnd::server
