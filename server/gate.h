#ifndef ATTND_SERVER_GATE_H_
#define ATTND_SERVER_GATE_H_

// What an accepted connection passes before gRPC gets it: TLS, where the server
// speaks it, and somebody who looks at its HTTP/2 from then on.

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "server/config/options.h"
#include "server/http2/inspector.h"
#include "server/net/origin.h"
#include "server/net/tls_door.h"
#include "server/net/tls_peers.h"
#include "server/telemetry/gate_log.h"
#include "server/tls/credentials_watch.h"

namespace attnd::server {

struct GateParts {
  // Is told what there is to say of connections.
  std::shared_ptr<GateLog> log;
  // Knows the peers of those that are encrypted.
  std::shared_ptr<TlsPeers> peers;
  // Gets those that have passed, on any thread, until the gate is gone.
  std::function<void(Descriptor)> hand_over;
};

// Thread-safe. Connections that have passed may outlive it.
class Gate {
 public:
  // A gate is closed by its destructor, after which nothing is logged.
  // INVALID_ARGUMENT, naming the flag: a certificate, key or root is not good.
  // RESOURCE_EXHAUSTED: no descriptor or no thread.
  static absl::StatusOr<std::unique_ptr<Gate>> Start(
      const ServerOptions& options, GateParts parts);
  ~Gate();

  // A connection by TCP, and one by the unix socket, which is never encrypted.
  // None waits for its peer.
  void AddTcp(Descriptor connection, const Origin& origin);
  void AddLocal(Descriptor connection, const Origin& origin);

 private:
  Gate(const ServerOptions& options, GateParts parts);
  absl::Status StartTls(const ServerOptions& options);
  void Pass(Descriptor connection, std::unique_ptr<TlsStream> tls,
            const Origin& origin);
  void EndPeers(const std::optional<absl::Status>& renewed);
  void TellTls();

  const GateParts parts_;
  const http2::InspectorOptions inspector_;
  std::unique_ptr<tls::CredentialsWatch> credentials_;
  std::unique_ptr<TlsDoor> tls_;  // null: TCP is in clear
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_GATE_H_
