#include "server/gate.h"

#include <utility>

#include "server/net/guard.h"
#include "server/net/guarded_connection.h"
#include "server/transport_limits.h"

namespace attnd::server {

absl::StatusOr<std::unique_ptr<Gate>> Gate::Start(
    const ServerOptions& options, std::shared_ptr<GateLog> log,
    std::function<void(Descriptor)> hand_over) {
  std::unique_ptr<Gate> gate(
      new Gate(options, std::move(log), std::move(hand_over)));
  if (!options.tls.enabled()) return gate;
  const absl::Status status = gate->StartTls(options);
  if (!status.ok()) return status;
  return gate;
}

Gate::Gate(const ServerOptions& options, std::shared_ptr<GateLog> log,
           std::function<void(Descriptor)> hand_over)
    : hand_over_(std::move(hand_over)),
      inspector_{.max_streams = options.max_streams_per_connection,
                 .max_header_list_bytes = options.max_metadata_bytes,
                 .max_frame_bytes = kMaxFrameBytes,
                 .settings_time = options.header_time},
      log_(std::move(log)) {}

Gate::~Gate() {
  tls_ = nullptr;
  log_->Close();
}

absl::Status Gate::StartTls(const ServerOptions& options) {
  auto credentials = tls::CredentialsWatch::Start(options.tls);
  if (!credentials.ok()) return credentials.status();
  credentials_ = *std::move(credentials);
  TlsDoorParts parts;
  parts.credentials = credentials_.get();
  parts.handshake_time = options.header_time;
  parts.on_ready = [this](Descriptor connection,
                          std::unique_ptr<tls::TlsStream> tls,
                          const Origin& origin) {
    log_->HandshakeDone();
    Pass(std::move(connection), std::move(tls), origin);
  };
  parts.on_failure = [this](absl::string_view why, const Origin& origin) {
    log_->HandshakeFailed(why, origin);
  };
  parts.on_second = [this](const std::optional<absl::Status>& renewed) {
    EndPeers(renewed);
  };
  auto door = TlsDoor::Start(std::move(parts));
  if (!door.ok()) return door.status();
  tls_ = *std::move(door);
  return absl::OkStatus();
}

void Gate::AddTcp(Descriptor connection, const Origin& origin) {
  if (tls_ != nullptr) return tls_->Add(std::move(connection), origin);
  Pass(std::move(connection), nullptr, origin);
}

void Gate::AddLocal(Descriptor connection, const Origin& origin) {
  Pass(std::move(connection), nullptr, origin);
}

void Gate::Pass(Descriptor connection, std::unique_ptr<tls::TlsStream> tls,
                const Origin& origin) {
  const int fd = connection.get();
  std::unique_ptr<TlsPeers::Entry> peer;
  if (tls != nullptr) {
    peer = peers_->Add(fd, tls->peer_certificate(), tls->peer_chain());
    if (peer == nullptr) return;
    // They may have been renewed while the handshake went on.
    if (!credentials_->current()->Admits(tls->peer_certificate(),
                                         tls->peer_chain())) {
      return;
    }
  }
  auto guard = std::make_unique<GuardedConnection>(
      fd, inspector_, std::move(tls), std::move(peer),
      [log = log_, origin](const Cut& cut) { log->WasCut(cut, origin); });
  if (PutGuard(fd, std::move(guard))) hand_over_(std::move(connection));
}

void Gate::EndPeers(const std::optional<absl::Status>& renewed) {
  if (renewed.has_value()) {
    const int ended =
        renewed->ok() ? peers_->EndUnknown(*credentials_->current()) : 0;
    log_->Renewed(*renewed, ended);
  }
  log_->PeersExpired(peers_->EndExpired());
}

}  // namespace attnd::server
