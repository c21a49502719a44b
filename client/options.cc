#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "attnd/client.h"
#include "client/token.h"
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

absl::Status CheckOneOf(const char* first, bool has_first, const char* second,
                        bool has_second) {
  if (!has_first || !has_second) return absl::OkStatus();
  return wire::FieldError(second, absl::StrCat("is given beside ", first,
                                               ": one of "
                                               "them is needed"));
}

absl::Status CheckBoth(const char* first, bool has_first, const char* second,
                       bool has_second) {
  if (has_first == has_second) return absl::OkStatus();
  return wire::FieldError(
      has_first ? second : first,
      absl::StrCat("is needed with ", has_first ? first : second));
}

// A name as certificates have them, or an address.
absl::Status CheckServerName(const std::string& name) {
  const auto is_good = [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' ||
           c == ':';
  };
  if (name.size() <= 253 && std::all_of(name.begin(), name.end(), is_good)) {
    return absl::OkStatus();
  }
  return wire::FieldError("tls.server_name",
                          absl::StrCat("\"", wire::Echo(name),
                                       "\" is no name or address of a host"));
}

absl::Status CheckTls(const TlsOptions& tls) {
  const bool has_ca = !tls.ca_file.empty() || !tls.ca_pem.empty();
  const bool has_certificate =
      !tls.certificate_file.empty() || !tls.certificate_pem.empty();
  const bool has_key = !tls.key_file.empty() || !tls.key_pem.empty();
  if (!tls.enabled) {
    const bool unused = has_ca || has_certificate || has_key ||
                        !tls.server_name.empty() || !tls.system_roots;
    if (!unused) return absl::OkStatus();
    return wire::FieldError("tls.enabled",
                            "is needed for what else is set of tls");
  }
  absl::Status status = CheckOneOf("tls.ca_file", !tls.ca_file.empty(),
                                   "tls.ca_pem", !tls.ca_pem.empty());
  if (!has_ca && !tls.system_roots) {
    status.Update(wire::FieldError(
        "tls.ca_file", "or tls.ca_pem is needed without tls.system_roots"));
  }
  status.Update(CheckOneOf("tls.certificate_file",
                           !tls.certificate_file.empty(), "tls.certificate_pem",
                           !tls.certificate_pem.empty()));
  status.Update(CheckOneOf("tls.key_file", !tls.key_file.empty(), "tls.key_pem",
                           !tls.key_pem.empty()));
  status.Update(CheckBoth("tls.certificate_file", has_certificate,
                          "tls.key_file", has_key));
  status.Update(CheckServerName(tls.server_name));
  return status;
}

absl::Status CheckTokens(const ClientOptions& options) {
  if (options.token.empty()) return absl::OkStatus();
  absl::Status status =
      CheckOneOf("token", true, "token_file", !options.token_file.empty());
  const absl::Status check = CheckToken(options.token);
  if (!check.ok()) status.Update(wire::FieldError("token", check.message()));
  return status;
}

}  // namespace

absl::Status ClientOptions::Validate() const {
  absl::Status status = CheckTls(tls);
  status.Update(CheckTokens(*this));
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
