#ifndef ATTND_CLIENT_ATTNLOAD_RANGE_H_
#define ATTND_CLIENT_ATTNLOAD_RANGE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnd::attnload {

// The load levels that one flag asks for, all > 0:
//   "8"             one
//   "1,4,32"        these
//   "100:1000:100"  from, to, step
//   "1:16:*2"       from, to, factor
// INVALID_ARGUMENT: anything else, or more than 1000 levels.
absl::StatusOr<std::vector<double>> ParseRange(absl::string_view text);

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_RANGE_H_
