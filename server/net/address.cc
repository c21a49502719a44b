#include "server/net/address.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/loopback.h"

namespace attnd::server {

absl::string_view BareHost(absl::string_view host) {
  absl::string_view inside = host;
  return absl::ConsumePrefix(&inside, "[") && absl::ConsumeSuffix(&inside, "]")
             ? inside
             : host;
}

bool IsLoopback(absl::string_view host) {
  const absl::string_view bare = BareHost(host);
  // RFC 6761 reserves the name.
  return absl::EqualsIgnoreCase(bare, "localhost") ||
         IsLoopbackAddress(std::string(bare));
}

std::string Address(absl::string_view host, int port) {
  const absl::string_view bare = BareHost(host);
  return absl::StrContains(bare, ':') ? absl::StrCat("[", bare, "]:", port)
                                      : absl::StrCat(bare, ":", port);
}

std::optional<HostPort> ParseHostPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  const absl::string_view host = address.substr(0, colon);
  const absl::string_view digits = address.substr(colon + 1);
  const absl::string_view bare = BareHost(host);
  if (bare.empty() || (absl::StrContains(host, ':') && bare == host)) {
    return std::nullopt;
  }
  int port = 0;
  // SimpleAtoi would take a sign and blanks, too.
  if (!std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(digits, &port) || port > UINT16_MAX) {
    return std::nullopt;
  }
  return HostPort{std::string(bare), port};
}

}  // namespace attnd::server
