#ifndef ATTND_SERVER_SCHEDULING_OPTION_RANGE_H_
#define ATTND_SERVER_SCHEDULING_OPTION_RANGE_H_

// How a refused option reads to whoever set it: "--lanes: must be 1 to 64, is
// 0".

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace attnd::server {

// INVALID_ARGUMENT: what `flag` was given cannot be, and `why`.
absl::Status BadOption(absl::string_view flag, absl::string_view why);

// BadOption unless `value` is from `min` to `max`.
absl::Status InRange(absl::string_view flag, int64_t value, int64_t min,
                     int64_t max);
absl::Status InRange(absl::string_view flag, absl::Duration value,
                     absl::Duration min, absl::Duration max);

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_OPTION_RANGE_H_
