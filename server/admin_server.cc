#include "server/admin_server.h"

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/guard/guard.h"
#include "grpc/grpc.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/wire/grpc_time.h"
#include "server/admin/channelz_service.h"
#include "server/admin/reflection_service.h"
#include "server/admin/status_page.h"
#include "server/admin/statusz_page.h"
#include "server/config/options.h"
#include "server/front/health_service.h"
#include "server/front/io_threads.h"
#include "server/net/address.h"
#include "server/net/connection_table.h"
#include "server/net/guarded_connection.h"
#include "server/net/listen.h"
#include "server/net/origin.h"
#include "server/telemetry/http_server.h"
#include "server/transport.h"

namespace attnd::server {
namespace {

constexpr int kStreamsPerConnection = 64;
constexpr int kQuotaBytes = 64 << 20;
// How long calls have to end when the server does.
constexpr absl::Duration kLastCalls = absl::Milliseconds(100);

// attn.v1.AttentionService, of which only this is served here.
class InfoService final : public RawService {
 public:
  explicit InfoService(const AdminParts& parts)
      : calls_("calls of GetServerInfo at once", kMaxAdminConnections,
               kMaxAdminConnections),
        answer_(AnswerBy<attn::v1::GetServerInfoRequest,
                         attn::v1::GetServerInfoResponse>(parts.info)) {
    Add("/attn.v1.AttentionService/GetServerInfo", [this, &parts] {
      return std::make_shared<SmallUnaryCall>(parts.small_calls, calls_,
                                              answer_);
    });
  }

 private:
  StreamLimits calls_;
  const UnaryAnswer answer_;
};

std::vector<std::unique_ptr<RawService>> Services(const AdminOptions& options,
                                                  const AdminParts& parts) {
  std::vector<std::unique_ptr<RawService>> services;
  services.push_back(std::make_unique<InfoService>(parts));
  services.push_back(std::make_unique<HealthService>(
      *parts.health, parts.small_calls, kMaxAdminConnections,
      kMaxAdminConnections));
  services.push_back(std::make_unique<ChannelzService>(parts.small_calls));
  if (options.reflection) {
    services.push_back(std::make_unique<ReflectionService>(
        std::vector<std::string>{"attn.v1.AttentionService",
                                 "grpc.channelz.v1.Channelz",
                                 "grpc.health.v1.Health"},
        parts.small_calls));
  }
  return services;
}

HttpPages Pages(const AdminParts& parts) {
  HttpPages pages;
  pages["/metrics"] = MetricsPage(parts.metrics);
  // That it answers is all that this says.
  pages["/healthz"] = [] { return HttpPage{.body = "ok\n"}; };
  pages["/readyz"] = [health = parts.health] {
    return HttpPage{.available = health->serving(),
                    .body = absl::StrCat(health->Describe(), "\n")};
  };
  pages["/status"] = [status = parts.status] {
    return HttpPage{.content_type = "application/json",
                    .body = StatusJson(status())};
  };
  pages["/statusz"] = [status = parts.status] {
    return HttpPage{.content_type = "text/html; charset=utf-8",
                    .body = StatuszHtml(status(), absl::Now())};
  };
  return pages;
}

void SetLimits(const AdminOptions& options, grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("attnd-admin");
  quota.Resize(kQuotaBytes);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(SmallCall::kMostBytes);
  const auto milliseconds = [](absl::Duration time) {
    return static_cast<int>(absl::ToInt64Milliseconds(time));
  };
  const std::pair<const char*, int> arguments[] = {
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnection},
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, milliseconds(options.header_time)},
      {GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds(options.keepalive_time)},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds(options.keepalive_timeout)},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      // The inspector counts pings, as for all other connections.
      {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_ENABLE_CHANNELZ, 1},
  };
  for (const auto& [name, value] : arguments) {
    builder.AddChannelArgument(name, value);
  }
}

Origin OriginOfSocket(int fd) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
    return {};
  }
  return OriginOf(peer);
}

}  // namespace

class AdminServer::Impl {
 public:
  Impl(const AdminOptions& options, AdminParts parts)
      : parts_(std::move(parts)), services_(Services(options, parts_)) {}

  ~Impl() {
    http_ = nullptr;  // nothing is handed over any more
    if (grpc_ == nullptr) return;
    grpc_->Shutdown(wire::ToGrpcDeadline(MonotonicNow() + kLastCalls));
    io_threads_ = nullptr;
  }

  absl::Status Start(const AdminOptions& options) {
    const std::optional<HostPort> address = ParseHostPort(options.address);
    if (!address.has_value()) {
      return absl::InvalidArgumentError("no address to listen on");
    }
    auto listeners =
        ListenOnTcp(address->host, address->port, options.keepalive_timeout);
    if (!listeners.ok()) return listeners.status();
    port_ = listeners->port;
    grpc::ServerBuilder builder;
    SetLimits(options, builder);
    for (const auto& service : services_) {
      builder.RegisterService(service.get());
    }
    io_threads_ = std::make_unique<IoThreads>(1, builder);
    const auto hand_over =
        ConnectionsTo(builder, grpc::InsecureServerCredentials());
    grpc_ = builder.BuildAndStart();
    if (grpc_ == nullptr) return absl::InternalError("gRPC cannot start");
    for (const auto& service : services_) service->Serve(*io_threads_);
    io_threads_->Start();
    HttpServerOptions http;
    http.listeners = std::move(listeners->sockets);
    http.pages = Pages(parts_);
    http.http2 = [this, hand_over](Descriptor connection) {
      const int fd = connection.get();
      const Origin origin = OriginOfSocket(fd);
      if (connections_.Add(fd, origin, MonotonicNow()).has_value()) return;
      auto guard = std::make_unique<GuardedConnection>(
          fd, http2::InspectorOptions{.max_streams = kStreamsPerConnection},
          nullptr, nullptr, [log = parts_.log, origin](const Cut& cut) {
            log->WasCut(cut, origin);
          });
      if (PutGuard(fd, std::move(guard))) hand_over(std::move(connection));
    };
    auto started = HttpServer::Start(std::move(http));
    if (!started.ok()) return started.status();
    http_ = *std::move(started);
    return absl::OkStatus();
  }

  int port() const { return port_; }

 private:
  const AdminParts parts_;
  const std::vector<std::unique_ptr<RawService>> services_;
  ConnectionTable connections_{kMaxAdminConnections, kMaxAdminConnections};
  std::unique_ptr<IoThreads> io_threads_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<HttpServer> http_;
  int port_ = -1;
};

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(
    const AdminOptions& options, AdminParts parts) {
  auto impl = std::make_unique<Impl>(options, std::move(parts));
  if (absl::Status status = impl->Start(options); !status.ok()) return status;
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;
int AdminServer::port() const { return impl_->port(); }

}  // namespace attnd::server
