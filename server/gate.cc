#include "server/gate.h"

#include <utility>

#include "base/guard/guard.h"
#include "server/net/guarded_connection.h"
#include "server/transport_limits.h"

namespace attnd::server {

absl::StatusOr<std::unique_ptr<Gate>> Gate::Start(const ServerOptions& options,
                                                  GateParts parts) {
  std::unique_ptr<Gate> gate(new Gate(options, std::move(parts)));
  if (!options.tls.enabled()) return gate;
  const absl::Status status = gate->StartTls(options);
  if (!status.ok()) return status;
  return gate;
}

Gate::Gate(const ServerOptions& options, GateParts parts)
    : parts_(std::move(parts)),
      inspector_{.max_streams = options.max_streams_per_connection,
                 .max_header_list_bytes = options.max_metadata_bytes,
                 .max_frame_bytes = kMaxFrameBytes,
                 .settings_time = options.header_time} {}

Gate::~Gate() {
  tls_ = nullptr;
  parts_.log->Close();
}

absl::Status Gate::StartTls(const ServerOptions& options) {
  auto credentials = tls::CredentialsWatch::Start(options.tls);
  if (!credentials.ok()) return credentials.status();
  credentials_ = *std::move(credentials);
  TellTls();
  TlsDoorParts door_parts;
  door_parts.credentials = credentials_.get();
  door_parts.handshake_time = options.header_time;
  door_parts.on_ready = [this](Descriptor connection,
                               std::unique_ptr<TlsStream> tls,
                               const Origin& origin) {
    parts_.log->HandshakeDone();
    Pass(std::move(connection), std::move(tls), origin);
  };
  door_parts.on_failure = [this](absl::string_view why, const Origin& origin) {
    parts_.log->HandshakeFailed(why, origin);
  };
  door_parts.on_second = [this](const std::optional<absl::Status>& renewed) {
    EndPeers(renewed);
  };
  auto door = TlsDoor::Start(std::move(door_parts));
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

void Gate::Pass(Descriptor connection, std::unique_ptr<TlsStream> tls,
                const Origin& origin) {
  const int fd = connection.get();
  std::unique_ptr<TlsPeers::Entry> peer;
  if (tls != nullptr) {
    peer = parts_.peers->Add(fd, *tls);
    if (peer == nullptr) return;
    // They may have been renewed while the handshake went on.
    if (!credentials_->current()->Admits(tls->peer_certificate(),
                                         tls->peer_chain())) {
      return;
    }
  }
  auto guard = std::make_unique<GuardedConnection>(
      fd, inspector_, std::move(tls), std::move(peer),
      [log = parts_.log, origin](const Cut& cut) { log->WasCut(cut, origin); });
  if (PutGuard(fd, std::move(guard))) parts_.hand_over(std::move(connection));
}

void Gate::EndPeers(const std::optional<absl::Status>& renewed) {
  if (renewed.has_value()) {
    const int ended =
        renewed->ok() ? parts_.peers->EndUnknown(*credentials_->current()) : 0;
    parts_.log->Renewed(*renewed, ended);
  }
  parts_.log->PeersExpired(parts_.peers->EndExpired());
  TellTls();
}

void Gate::TellTls() {
  parts_.log->TlsIs(credentials_->files_good(),
                    credentials_->current()->certificate_end());
}

}  // namespace attnd::server
