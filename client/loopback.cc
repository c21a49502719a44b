#include "client/loopback.h"

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/loopback.h"

namespace attnd::client {
namespace {

// "[::1]:80", "::1", "host:80" and "host" without port and brackets.
std::string HostOf(absl::string_view address) {
  if (absl::ConsumePrefix(&address, "[")) {
    const size_t end = address.find(']');
    return end == address.npos ? "" : std::string(address.substr(0, end));
  }
  const size_t colon = address.find(':');
  // Several colons: an IPv6 address without a port.
  if (colon != address.npos && address.find(':', colon + 1) == address.npos) {
    address = address.substr(0, colon);
  }
  return std::string(address);
}

}  // namespace

bool IsLoopbackTarget(const std::string& target) {
  absl::string_view rest = target;
  const bool addresses = absl::ConsumePrefix(&rest, "ipv4:") ||
                         absl::ConsumePrefix(&rest, "ipv6:");
  if (addresses) {
    for (const absl::string_view address : absl::StrSplit(rest, ',')) {
      if (!IsLoopbackAddress(HostOf(address))) return false;
    }
    return true;
  }
  // "dns:host:80", "dns:///host:80". A server of names in between may say
  // anything of a name: "dns://server/host:80".
  if (absl::ConsumePrefix(&rest, "dns:")) absl::ConsumePrefix(&rest, "///");
  const std::string host = HostOf(rest);
  return absl::EqualsIgnoreCase(host, "localhost") || IsLoopbackAddress(host);
}

}  // namespace attnd::client
