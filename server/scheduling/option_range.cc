#include "server/scheduling/option_range.h"

#include "absl/strings/str_cat.h"

namespace attnd::server {

absl::Status BadOption(absl::string_view flag, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", why));
}

absl::Status InRange(absl::string_view flag, int64_t value, int64_t min,
                     int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return BadOption(flag,
                   absl::StrCat("must be ", min, " to ", max, ", is ", value));
}

absl::Status InRange(absl::string_view flag, absl::Duration value,
                     absl::Duration min, absl::Duration max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return BadOption(flag, absl::StrCat("must be ", absl::FormatDuration(min),
                                      " to ", absl::FormatDuration(max),
                                      ", is ", absl::FormatDuration(value)));
}

}  // namespace attnd::server
