#include "server/identity/callers.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/status.h"
#include "server/identity/peer.h"
#include "server/scheduling/call_refusal.h"

namespace attnd::server {
namespace {

// The token of "Bearer TOKEN" (RFC 6750), as one space parts them.
std::optional<absl::string_view> TokenIn(absl::string_view header) {
  constexpr absl::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(header, kScheme)) return std::nullopt;
  const absl::string_view token = header.substr(kScheme.size());
  for (const char c : token) {
    if (!absl::ascii_isgraph(c) || c == ',') return std::nullopt;
  }
  if (token.empty()) return std::nullopt;
  return token;
}

}  // namespace

Callers::Callers(const IdentityOptions& options, const TokenStore* tokens,
                 CertificateOf certificate_of)
    : options_(options),
      tokens_(tokens),
      certificate_of_(std::move(certificate_of)) {}

absl::Status Callers::Unauthenticated(int64_t CallerStats::*count) {
  MutexLock lock(mutex_);
  ++(stats_.*count);
  // Nothing in it tells a guess that is near from any other.
  return absl::UnauthenticatedError("the call is not authenticated");
}

Caller Callers::Unnamed(std::string client) const {
  Caller caller;
  caller.client = std::move(client);
  caller.quota.queue_bytes = options_.limits.queue_bytes;
  caller.quota.queue_flops = options_.limits.queue_flops;
  // Where priority can be granted, it has to be.
  if (tokens_ != nullptr) caller.most_priority = Priority::kNormal;
  return caller;
}

Caller Callers::Named(const NamedIdentity& identity) const {
  Caller caller = Unnamed(absl::StrCat("token:", identity.name));
  ClientQuota& quota = caller.quota;
  quota.queue_bytes = identity.queue_bytes.value_or(quota.queue_bytes);
  quota.queue_flops = identity.queue_flops.value_or(quota.queue_flops);
  quota.shares = identity.shares;
  caller.most_priority = identity.most_priority;
  return caller;
}

absl::StatusOr<Caller> Callers::Admit(
    absl::string_view peer, absl::Span<const absl::string_view> authorization,
    absl::Time now) {
  std::shared_ptr<const TokenSet> tokens;  // keeps `named`
  const NamedIdentity* named = nullptr;
  if (tokens_ != nullptr && !authorization.empty()) {
    const auto token =
        authorization.size() == 1 ? TokenIn(authorization[0]) : std::nullopt;
    if (token.has_value()) {
      tokens = tokens_->tokens();
      named = tokens->Find(*token);
    }
    if (named == nullptr) return Unauthenticated(&CallerStats::token);
  }
  const std::string certificate =
      certificate_of_ ? certificate_of_(peer) : std::string();
  Caller caller;
  double rate = options_.limits.calls_per_second;
  if (!certificate.empty()) {
    caller = Unnamed(absl::StrCat("certificate:", certificate));
  } else if (named != nullptr) {
    caller = Named(*named);
    rate = named->calls_per_second.value_or(rate);
  } else if (options_.required) {
    return Unauthenticated(&CallerStats::no_identity);
  } else {
    caller = Unnamed(ClientOf(peer));
  }
  if (rate <= 0) return caller;
  MutexLock lock(mutex_);
  const absl::Duration wait = rates_.Take(caller.client, rate, now);
  if (wait <= absl::ZeroDuration()) return caller;
  return wire::WithRetryInfo(
      Refused(CallRefusal::kMaxClientRate,
              absl::ResourceExhaustedError(
                  "the client's limit of calls a second (--max_client_rate) is "
                  "reached")),
      wait);
}

CallerStats Callers::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace attnd::server
