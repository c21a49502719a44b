#ifndef ATTND_CLIENT_TOKEN_H_
#define ATTND_CLIENT_TOKEN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnd::client {

// More than any token has, and what fits a call's metadata.
inline constexpr int kMaxTokenBytes = 4096;

// Whether `token` can go as "Bearer TOKEN": 1 to kMaxTokenBytes of printable
// ASCII without spaces. INVALID_ARGUMENT otherwise, which never shows any of
// it.
absl::Status CheckToken(absl::string_view token);

// The token in a file's text: all of it but the space and the ends of lines
// around it. INVALID_ARGUMENT when that is none.
absl::StatusOr<std::string> TokenIn(absl::string_view text);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_TOKEN_H_
