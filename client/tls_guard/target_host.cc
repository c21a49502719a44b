#include "client/tls_guard/target_host.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace attnd::client {
namespace {

bool IsOfName(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
         c == '-' || c == '_';
}
// Without a zone, which no certificate names.
bool IsOfIpv6(char c) {
  return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':' ||
         c == '.';
}
bool IsDigit(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c));
}

}  // namespace

std::string TargetHost(const std::string& target) {
  absl::string_view rest = target;
  if (absl::ConsumePrefix(&rest, "dns:")) absl::ConsumePrefix(&rest, "///");
  const size_t colon = rest.rfind(':');
  if (colon == rest.npos) return "";
  absl::string_view host = rest.substr(0, colon);
  const absl::string_view port = rest.substr(colon + 1);
  const bool in_brackets =
      absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (port.empty() || !std::ranges::all_of(port, IsDigit) ||
      !std::ranges::all_of(host, in_brackets ? IsOfIpv6 : IsOfName)) {
    return "";
  }
  return std::string(host);
}

}  // namespace attnd::client
