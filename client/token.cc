#include "client/token.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace attnd::client {

absl::Status CheckToken(absl::string_view token) {
  if (token.empty()) return absl::InvalidArgumentError("has no token");
  if (token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has more than ", kMaxTokenBytes, " bytes"));
  }
  if (!std::all_of(token.begin(), token.end(),
                   [](unsigned char c) { return absl::ascii_isgraph(c); })) {
    return absl::InvalidArgumentError(
        "is not one token of printable ASCII without spaces");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TokenIn(absl::string_view text) {
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  if (absl::Status status = CheckToken(token); !status.ok()) return status;
  return std::string(token);
}

}  // namespace attnd::client
