#include "server/config/options.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/codec.h"
#include "server/net/address.h"
#include "server/scheduling/option_range.h"

namespace attnd::server {
namespace {

constexpr int64_t kMinMemoryLimit = int64_t{16} << 20;

// Who may listen where, and with which encryption.
absl::Status ValidateExposure(const ServerOptions& options) {
  const tls::CredentialFiles& tls = options.tls;
  if (tls.certificate.empty() != tls.key.empty()) {
    return tls.key.empty() ? BadOption("--tls_cert", "needs --tls_key")
                           : BadOption("--tls_key", "needs --tls_cert");
  }
  if (!tls.client_ca.empty() && !tls.enabled()) {
    return BadOption("--tls_client_ca", "needs --tls_cert and --tls_key");
  }
  if (tls.enabled() && options.port < 0) {
    return BadOption("--tls_cert", "is for TCP, which --port=-1 does without");
  }
  if (IsLoopback(options.host) || options.allow_insecure_bind) {
    return absl::OkStatus();
  }
  if (!tls.enabled()) {
    return BadOption("--host",
                     absl::StrCat(options.host, " is not loopback, and ",
                                  "traffic is not encrypted without ",
                                  "--tls_cert; --insecure allows it"));
  }
  if (options.metrics_port >= 0) {
    return BadOption(
        "--metrics_port",
        absl::StrCat("metrics are not encrypted, and ", options.host,
                     " is not loopback; ", "--insecure allows it"));
  }
  return absl::OkStatus();
}

}  // namespace

MemoryShares DivideMemory(int64_t memory_limit_bytes) {
  MemoryShares shares;
  // The rest is for small messages, for windows of messages that wait, and for
  // what nothing counts: read buffers that a peer has filled by less than their
  // size, headers, call state, and what the C library keeps between messages of
  // many sizes. That is more than a sixteenth where the limit is low.
  shares.transport_bytes =
      memory_limit_bytes / 2 -
      std::min<int64_t>(memory_limit_bytes / 8, int64_t{32} << 20);
  shares.account_bytes = memory_limit_bytes / 16 * 7;
  shares.small_bytes =
      std::clamp<int64_t>(memory_limit_bytes / 64, 1 << 20, 64 << 20);
  constexpr int64_t kWindowBytes = 64 << 10;
  shares.max_waiting =
      std::max<int64_t>(memory_limit_bytes / 32 / kWindowBytes, 1024);
  shares.max_message_bytes =
      std::min(memory_limit_bytes / 16 * 3, wire::kMaxMessageBytes);
  return shares;
}

int ServerOptions::IoThreads() const {
  if (io_threads > 0) return io_threads;
  const auto processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::clamp(processors, 1, 16);
}

absl::Status ServerOptions::Validate() const {
  if (host.empty()) return BadOption("--host", "must not be empty");
  absl::Status exposed = ValidateExposure(*this);
  if (!exposed.ok()) return exposed;
  if (!admin_address.empty()) {
    const std::optional<HostPort> admin = ParseHostPort(admin_address);
    if (!admin.has_value()) {
      return BadOption("--admin_address",
                       "must be HOST:PORT, such as 127.0.0.1:7412 or [::1]:0");
    }
    if (!IsLoopback(admin->host) && !allow_insecure_bind) {
      return BadOption("--admin_address",
                       absl::StrCat(admin->host, " is not loopback, and who ",
                                    "connects is not asked who it is; ",
                                    "--insecure allows it"));
    }
  }
  if (port < 0 && unix_socket.empty()) {
    return BadOption("--port", "-1 needs --unix_socket: nothing to listen on");
  }
  // sockaddr_un holds 108 bytes with the terminating zero.
  if (unix_socket.size() > 107) {
    return BadOption("--unix_socket", "must be at most 107 bytes long");
  }
  if (absl::StartsWith(unix_socket, "@")) {
    return BadOption("--unix_socket",
                     "an abstract socket, which has no permissions, is not "
                     "supported; a file of that name is ./@...");
  }
  if (unix_socket_mode < 0 || unix_socket_mode > 0777) {
    return BadOption("--unix_socket_mode", "must be 0 to 0777");
  }
  const MemoryShares shares = DivideMemory(memory_limit_bytes);
  absl::Status status = InRange("--port", port, -1, 65535);
  status.Update(InRange("--metrics_port", metrics_port, -1, 65535));
  status.Update(InRange("--memory_limit", memory_limit_bytes, kMinMemoryLimit,
                        int64_t{1} << 50));
  if (status.ok()) {
    status.Update(InRange("--max_message", max_message_bytes, 0,
                          shares.max_message_bytes));
  }
  status.Update(InRange("--drain_time", drain_time, absl::ZeroDuration(),
                        absl::Hours(24)));
  status.Update(InRange("--keepalive_time", keepalive_time,
                        absl::Milliseconds(100), absl::Hours(24)));
  status.Update(InRange("--keepalive_timeout", keepalive_timeout,
                        absl::Milliseconds(100), absl::Hours(24)));
  if (!otlp_endpoint.empty() && !absl::StartsWith(otlp_endpoint, "http://") &&
      !absl::StartsWith(otlp_endpoint, "https://")) {
    return BadOption("--otlp_endpoint", "must begin with http:// or https://");
  }
  if (calls.slow_time != absl::ZeroDuration()) {
    status.Update(InRange("--slow_time", calls.slow_time, absl::Microseconds(1),
                          absl::Hours(24)));
  }
  status.Update(InRange("--stall_time", stall_time, absl::Milliseconds(100),
                        absl::Hours(24)));
  status.Update(
      InRange("--max_transfer_streams", max_transfer_streams, 1, 256));
  status.Update(InRange("--io_threads", io_threads, 0, 256));
  status.Update(InRange("--max_streams", max_streams_per_connection, 1,
                        int64_t{1} << 20));
  status.Update(
      InRange("--max_connections", max_connections, 1, int64_t{1} << 20));
  status.Update(InRange("--max_connections_per_client",
                        max_connections_per_client, 1, int64_t{1} << 20));
  if (idle_timeout != absl::ZeroDuration()) {
    status.Update(InRange("--idle_timeout", idle_timeout,
                          absl::Milliseconds(100), absl::Hours(24)));
  }
  if (connection_age != absl::ZeroDuration()) {
    status.Update(InRange("--connection_age", connection_age,
                          absl::Milliseconds(100), absl::Hours(24)));
  }
  status.Update(InRange("--header_time", header_time, absl::Milliseconds(100),
                        absl::Hours(24)));
  status.Update(
      InRange("--max_metadata", max_metadata_bytes, 1 << 10, 1 << 20));
  status.Update(scheduler.Validate());
  status.Update(regions.Validate());
  status.Update(identity.Validate());
  if (identity.required && identity.token_file.empty() &&
      tls.client_ca.empty()) {
    status.Update(BadOption("--require_identity",
                            "needs --token_file or --tls_client_ca: nobody "
                            "could call"));
  }
  if (regions.enabled() && regions.socket == unix_socket) {
    status.Update(BadOption("--region_socket", "must not be --unix_socket's"));
  }
  return status;
}

}  // namespace attnd::server
