#ifndef ATTND_SERVER_NET_GATE_STATS_H_
#define ATTND_SERVER_NET_GATE_STATS_H_

#include <cstdint>
#include <optional>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "server/http2/frame.h"

namespace attnd::server {

// What stood between accepted connections and gRPC, since the start.
struct GateStats {
  int64_t tls_handshakes = 0;  // that were done
  int64_t tls_handshakes_failed = 0;
  int64_t tls_renewals = 0;  // of the certificate, its key, or clients' roots
  int64_t tls_peers_ended = 0;  // as they were known no longer, or had expired
  // Whether the files that the server was told of are what it goes by; false:
  // they have changed, are not good, and it goes by what they were. Empty:
  // there are none.
  std::optional<bool> tls_files_good;
  // When the first certificate of the server's chain ends; empty without TLS.
  std::optional<absl::Time> certificate_end;
  // Connections that broke HTTP/2's rules, by the error they were told.
  absl::btree_map<http2::ErrorCode, int64_t> cut;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_GATE_STATS_H_
