#ifndef ATTND_SERVER_IDENTITY_CALLERS_H_
#define ATTND_SERVER_IDENTITY_CALLERS_H_

// Who calls: the certificate of the connection if it has one, else the call's
// token, else the peer's address. It is found out for each call from the call's
// own metadata, and never kept with a connection, over which calls of several
// identities may come. No gRPC in here.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "server/identity/call_rates.h"
#include "server/identity/options.h"
#include "server/identity/token_store.h"
#include "server/work/client_quota.h"
#include "server/work/priority.h"

namespace attnd::server {

struct Caller {
  // Whose shares, limits and transfers a call's are: "certificate:NAME",
  // "token:NAME", or an address as ClientOf has it.
  std::string client;
  ClientQuota quota;
  // The highest that its requests may have.
  Priority most_priority = Priority::kHigh;
};

// Calls that were refused as they came, since the start. Their clients do not
// learn which of the two it was, so that it is counted here.
struct CallerStats {
  int64_t no_identity = 0;
  int64_t token = 0;
};

// Thread-safe.
class Callers {
 public:
  // The name that the certificate of a connection has, by gRPC's peer; empty:
  // it has none, or none that was checked.
  using CertificateOf = std::function<std::string(absl::string_view peer)>;

  // `tokens`, which outlives it, may be null: none is known.
  explicit Callers(const IdentityOptions& options,
                   const TokenStore* tokens = nullptr,
                   CertificateOf certificate_of = nullptr);

  // Who makes a call that comes now (MonotonicNow()) over `peer`'s connection
  // with these authorization headers. Takes one of the client's calls a second.
  //   UNAUTHENTICATED     there is a header and it holds no token that is
  //                       known, or there are two; or it has no identity but
  //                       its address, and that does not do. Whatever it is,
  //                       the message is the same
  //   RESOURCE_EXHAUSTED  the client calls too often; with RetryInfo
  absl::StatusOr<Caller> Admit(
      absl::string_view peer, absl::Span<const absl::string_view> authorization,
      absl::Time now);

  CallerStats stats() const;

 private:
  absl::Status Unauthenticated(int64_t CallerStats::*count);
  Caller Unnamed(std::string client) const;
  Caller Named(const NamedIdentity& identity) const;

  const IdentityOptions options_;
  const TokenStore* const tokens_;
  const CertificateOf certificate_of_;

  mutable Mutex mutex_;
  CallRates rates_ ABSL_GUARDED_BY(mutex_);
  CallerStats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_IDENTITY_CALLERS_H_
