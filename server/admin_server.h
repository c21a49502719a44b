#ifndef ATTND_SERVER_ADMIN_SERVER_H_
#define ATTND_SERVER_ADMIN_SERVER_H_

// The port for whoever operates the server: gRPC (health, reflection, channelz
// and GetServerInfo) by a grpc::Server of its own, and pages over HTTP/1.1. A
// connection's first bytes tell which of both its peer speaks.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attn/v1/attention.pb.h"
#include "prometheus/collectable.h"
#include "server/admin/server_status.h"
#include "server/front/health.h"
#include "server/front/small_call.h"
#include "server/telemetry/gate_log.h"

namespace attnd::server {

// Of connections that speak gRPC there may be kMaxAdminConnections, and any
// number of clients' on the public port beside them.
struct AdminOptions {
  std::string address;  // HOST:PORT; port 0 is any free one
  bool reflection = true;
  // A silent peer is given up after both together; what it does not
  // acknowledge it has the second for.
  absl::Duration keepalive_time, keepalive_timeout;
  absl::Duration header_time;  // in which a peer must begin to speak HTTP/2
};

// What it shows; all of it outlives it, and any thread may call it.
struct AdminParts {
  SmallCallParts small_calls;
  Health* health = nullptr;
  std::function<absl::Status(const SmallCaller& caller,
                             const attn::v1::GetServerInfoRequest& request,
                             attn::v1::GetServerInfoResponse& response)>
      info;
  std::shared_ptr<const prometheus::Collectable> metrics;
  std::function<ServerStatus()> status;
  // Is told of connections that break HTTP/2's rules.
  std::shared_ptr<GateLog> log;
};

// Thread-safe.
class AdminServer {
 public:
  // Serves once it returns. INVALID_ARGUMENT: the address is none. UNAVAILABLE:
  // it cannot be had. RESOURCE_EXHAUSTED: no thread or no descriptor.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(
      const AdminOptions& options, AdminParts parts);
  // Ends its calls.
  ~AdminServer();

  int port() const;

 private:
  class Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_ADMIN_SERVER_H_
