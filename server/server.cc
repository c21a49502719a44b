#include "server/server.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/wire/grpc_time.h"
#include "server/admin/reflection_service.h"
#include "server/admin_server.h"
#include "server/front/admitted_calls.h"
#include "server/front/describe.h"
#include "server/front/excess_memory.h"
#include "server/front/health.h"
#include "server/front/health_service.h"
#include "server/front/io_threads.h"
#include "server/front/service.h"
#include "server/front/upload_room.h"
#include "server/gate.h"
#include "server/identity/callers.h"
#include "server/identity/token_store.h"
#include "server/identity/token_watch.h"
#include "server/net/acceptor.h"
#include "server/net/connection_table.h"
#include "server/net/lingering_close.h"
#include "server/net/listen.h"
#include "server/net/unix_socket.h"
#include "server/region/regions.h"
#include "server/scheduling/call_refusal.h"
#include "server/telemetry/call_log.h"
#include "server/telemetry/gate_log.h"
#include "server/telemetry/metrics.h"
#include "server/telemetry/metrics_server.h"
#include "server/telemetry/refusal_log.h"
#include "server/telemetry/span_sink.h"
#include "server/telemetry/usage_watch.h"
#include "server/transfer/alarms.h"
#include "server/transfer/transfer_table.h"
#include "server/transport.h"
#include "server/work/device_name.h"

namespace attnd::server {
namespace {

// How long, after the drain time, responses may take to leave.
constexpr absl::Duration kLastResponses = absl::Milliseconds(500);

}  // namespace

class Server::Impl {
 public:
  explicit Impl(const ServerOptions& options,
                std::vector<std::unique_ptr<Backend>> backends)
      : options_(options),
        backends_(std::move(backends)),
        health_(static_cast<int>(backends_.size())),
        connections_(options.max_connections,
                     options.max_connections_per_client) {
    const MemoryShares shares = DivideMemory(options_.memory_limit_bytes);
    options_.scheduler.memory_bytes = shares.account_bytes;
    if (options_.max_message_bytes == 0) {
      options_.max_message_bytes = shares.max_message_bytes;
    }
  }

  ~Impl() {
    Drain(absl::ZeroDuration());
    if (transfers_ != nullptr) {
      transfers_->EndAll(ShuttingDown());
    }
    // While it drains, connections are accepted and their calls refused.
    acceptor_ = nullptr;
    gate_ = nullptr;
    health_.Ended();
    admin_ = nullptr;
    if (transport_ == nullptr) return;
    transport_->Shutdown(wire::ToGrpcDeadline(MonotonicNow() + kLastResponses));
    io_threads_ = nullptr;
  }

  absl::Status Start() {
    absl::Status status = StartIdentity();
    if (status.ok()) status = StartUsage();
    if (status.ok()) status = StartScheduler();
    if (status.ok()) status = StartRegions();
    if (status.ok()) status = StartMetrics();
    if (status.ok()) status = StartTransport();
    if (status.ok()) status = StartAdmin();
    return status;
  }

  void Drain(absl::Duration drain_time) {
    MutexLock one_at_a_time(drain_mutex_);
    if (drained_) return;
    drained_ = true;
    const absl::Time deadline = MonotonicNow() + drain_time;
    health_.Draining();
    if (regions_ != nullptr) regions_->Drain();
    if (uploads_ != nullptr) uploads_->Close();
    if (scheduler_ != nullptr) scheduler_->Drain(deadline);
    if (transfers_ != nullptr && MonotonicNow() >= deadline) {
      transfers_->EndAll(ShuttingDown());
    }
    const absl::Time last = std::max(deadline, MonotonicNow()) + kLastResponses;
    admitted_calls_.WaitForNone(last);
    if (lingering_ == nullptr) return;
    // Answers are the system's now, which may hold megabytes of them.
    tls_peers_->SayGoodbye();
    lingering_->EndAll();
    lingering_->WaitForNone(last, kLastResponses);
    if (spans_ != nullptr) spans_->Flush(kLastResponses);
  }

  std::vector<std::string> Describe() const {
    return DescribeServer(options_, backends_, port_, metrics_port(),
                          admin_port());
  }
  int port() const { return port_; }
  int metrics_port() const {
    return metrics_server_ == nullptr ? -1 : metrics_server_->port();
  }
  int admin_port() const { return admin_ == nullptr ? -1 : admin_->port(); }
  void RemoveUnixSocket() {
    if (unix_socket_ != nullptr) unix_socket_->Remove();
    if (regions_ != nullptr) regions_->RemoveSocket();
  }
  SchedulerStats stats() const { return scheduler_->stats(); }
  void ReleaseIdleMemory() { scheduler_->ReleaseIdleMemory(); }
  bool IsQuiet() const {
    return uploads_->stats().reserved_bytes + stats().account_bytes <
           options_.memory_limit_bytes / 16;
  }

 private:
  absl::Status StartIdentity() {
    const IdentityOptions& options = options_.identity;
    if (!options.token_file.empty()) {
      auto tokens = TokenStore::Open(options.token_file, options_.log);
      if (!tokens.ok()) return tokens.status();
      tokens_ = *std::move(tokens);
      auto watch = TokenWatch::Start(*tokens_);
      if (!watch.ok()) return watch.status();
      token_watch_ = *std::move(watch);
    }
    Callers::CertificateOf certificate_of;
    if (!options_.tls.client_ca.empty()) {
      certificate_of = [this](absl::string_view peer) {
        return tls_peers_->NameOf(peer);
      };
    }
    callers_ = std::make_unique<Callers>(options, tokens_.get(),
                                         std::move(certificate_of));
    return absl::OkStatus();
  }

  absl::Status StartScheduler() {
    std::vector<Backend*> devices;
    for (const auto& backend : backends_) devices.push_back(backend.get());
    auto scheduler = Scheduler::Create(
        options_.scheduler, std::move(devices),
        [this](int device, const absl::Status& fault) {
          if (options_.log) {
            options_.log(FaultLine(backends_[device]->device(), fault));
          }
          health_.DeviceLeft();
        });
    if (!scheduler.ok()) return scheduler.status();
    scheduler_ = *std::move(scheduler);
    const MemoryShares shares = DivideMemory(options_.memory_limit_bytes);
    uploads_ = std::make_unique<UploadRoom>(
        UploadLimits{shares.transport_bytes, shares.small_bytes,
                     options_.max_message_bytes, shares.max_waiting});
    metrics_ = std::make_shared<Metrics>(Facts(), [this] { return Stats(); });
    if (!options_.otlp_endpoint.empty()) {
      auto spans =
          StartOtlpSpans({options_.otlp_endpoint, instance_id_, options_.log});
      if (!spans.ok()) return spans.status();
      spans_ = *std::move(spans);
    }
    calls_ = std::make_unique<CallLog>(*metrics_, options_.calls, spans_.get());
    return absl::OkStatus();
  }

  absl::Status StartUsage() {
    std::vector<const Backend*> devices;
    for (const auto& backend : backends_) devices.push_back(backend.get());
    auto usage = UsageWatch::Start(std::move(devices));
    if (!usage.ok()) return usage.status();
    usage_ = *std::move(usage);
    return absl::OkStatus();
  }

  absl::Status StartRegions() {
    if (!options_.regions.enabled()) return absl::OkStatus();
    std::vector<Backend*> devices;
    for (const auto& backend : backends_) devices.push_back(backend.get());
    auto regions = Regions::Start({.options = options_.regions,
                                   .devices = std::move(devices),
                                   .server_instance_id = instance_id_,
                                   .header_time = options_.header_time,
                                   .log = options_.log});
    if (!regions.ok()) return regions.status();
    regions_ = *std::move(regions);
    return absl::OkStatus();
  }

  absl::Status StartMetrics() {
    if (options_.metrics_port < 0) return absl::OkStatus();
    auto server =
        MetricsServer::Start(options_.host, options_.metrics_port, metrics_);
    if (!server.ok()) return server.status();
    metrics_server_ = *std::move(server);
    return absl::OkStatus();
  }

  absl::Status StartTransport() {
    absl::StatusOr<std::vector<Door>> doors = Listen();
    if (!doors.ok()) return doors.status();
    alarms_ = std::make_unique<Alarms>();
    const std::function<int64_t()> excess_memory = ExcessMemory(options_);
    transfers_ = std::make_unique<TransferTable>(
        TransferParts{scheduler_.get(), alarms_.get(), options_.stall_time},
        options_.max_transfer_streams, excess_memory);
    service_ = std::make_unique<Service>(
        ServiceParts{scheduler_.get(), calls_.get(), &admitted_calls_,
                     uploads_.get(), transfers_.get(), alarms_.get(),
                     regions_ == nullptr ? nullptr : &regions_->table(),
                     excess_memory, options_.max_message_bytes,
                     options_.stall_time, options_.header_time, callers_.get()},
        MakeServerInfo(instance_id_, options_, backends_));
    grpc::ServerBuilder builder;
    SetLimits(options_, builder);
    builder.RegisterService(service_.get());
    AddSmallServices();
    for (const auto& service : small_services_) {
      builder.RegisterService(service.get());
    }
    io_threads_ = std::make_unique<IoThreads>(options_.IoThreads(), builder);
    // What is encrypted is decrypted before gRPC gets it.
    std::function<void(Descriptor)> hand_over =
        ConnectionsTo(builder, grpc::InsecureServerCredentials());
    transport_ = builder.BuildAndStart();
    if (transport_ == nullptr) return absl::InternalError("gRPC cannot start");
    service_->Serve(*io_threads_);
    for (const auto& service : small_services_) service->Serve(*io_threads_);
    io_threads_->Start();
    health_.Started();
    auto lingering = LingeringClose::Start(connections_, options_.stall_time);
    if (!lingering.ok()) return lingering.status();
    lingering_ = *std::move(lingering);
    auto gate =
        Gate::Start(options_, {gate_log_, tls_peers_, std::move(hand_over)});
    if (!gate.ok()) return gate.status();
    gate_ = *std::move(gate);
    auto acceptor = Acceptor::Start(*std::move(doors), connections_,
                                    [lines = std::make_shared<RefusalLog>(
                                         options_.log, options_.leave_out)](
                                        Refusal why, const Origin& origin) {
                                      lines->Add(why, origin, MonotonicNow());
                                    });
    if (!acceptor.ok()) return acceptor.status();
    acceptor_ = *std::move(acceptor);
    return absl::OkStatus();
  }

  // On TCP and on the unix socket. Who connects waits until there is somebody
  // to accept.
  absl::StatusOr<std::vector<Door>> Listen() {
    std::vector<Door> doors;
    if (options_.port >= 0) {
      auto tcp =
          ListenOnTcp(options_.host, options_.port, options_.keepalive_timeout);
      if (!tcp.ok()) return tcp.status();
      port_ = tcp->port;
      for (Descriptor& socket : tcp->sockets) {
        doors.push_back(
            {std::move(socket), [this](auto connection, auto& from) {
               gate_->AddTcp(std::move(connection), from);
             }});
      }
    }
    if (!options_.unix_socket.empty()) {
      auto file = UnixSocketFile::Claim(options_.unix_socket);
      if (!file.ok()) return file.status();
      unix_socket_ = *std::move(file);
      auto socket = unix_socket_->Listen(options_.unix_socket_mode);
      if (!socket.ok()) return socket.status();
      doors.push_back({*std::move(socket), [this](auto connection, auto& from) {
                         gate_->AddLocal(std::move(connection), from);
                       }});
    }
    return doors;
  }

  // What the public port has beside attention.
  void AddSmallServices() {
    small_services_.push_back(std::make_unique<HealthService>(
        health_, service_->small_calls(), options_.max_connections,
        options_.max_connections_per_client));
    if (options_.reflection != Reflection::kAll) return;
    small_services_.push_back(std::make_unique<ReflectionService>(
        std::vector<std::string>{"attn.v1.AttentionService",
                                 "grpc.health.v1.Health"},
        service_->small_calls()));
  }

  absl::Status StartAdmin() {
    if (options_.admin_address.empty()) return absl::OkStatus();
    auto admin = AdminServer::Start(
        {.address = options_.admin_address,
         .reflection = options_.reflection != Reflection::kOff,
         .keepalive_time = options_.keepalive_time,
         .keepalive_timeout = options_.keepalive_timeout,
         .header_time = options_.header_time},
        {.small_calls = service_->small_calls(),
         .health = &health_,
         .info =
             [this](const auto& caller, const auto& request, auto& info) {
               return service_->Answer(caller, request, info);
             },
         .metrics = metrics_,
         .status = [this] { return Status(); },
         .log = gate_log_});
    if (!admin.ok()) return admin.status();
    admin_ = *std::move(admin);
    return absl::OkStatus();
  }

  ServerFacts Facts() const {
    ServerFacts facts;
    for (const auto& backend : backends_) {
      const DeviceInfo& device = backend->device();
      facts.devices.push_back({DeviceLabel(device), device.name});
    }
    facts.memory_limit_bytes = options_.memory_limit_bytes;
    facts.max_connections = options_.max_connections;
    facts.max_connections_per_client = options_.max_connections_per_client;
    facts.max_queue_requests = options_.scheduler.max_queue_requests;
    facts.max_queue_flops = options_.scheduler.max_queue_flops;
    return facts;
  }
  ServerStats Stats() {
    ServerStats stats;
    stats.scheduler = scheduler_->stats();
    stats.uploads = uploads_->stats();
    stats.connections = connections_.stats();
    if (regions_ != nullptr) stats.regions = regions_->stats();
    stats.callers = callers_->stats();
    stats.gate = gate_log_->stats();
    if (tokens_ != nullptr) stats.token_file_good = tokens_->file_good();
    if (options_.log_stats) stats.log = options_.log_stats();
    stats.usage = usage_->usage(MonotonicNow());
    return stats;
  }
  ServerStatus Status() {
    ServerStatus status;
    status.health = std::string(health_.Describe());
    status.now = MonotonicNow();
    status.uptime = status.now - started_;
    status.info = service_->info();
    status.build = DescribeBuild(grpc::Version());
    status.facts = Facts();
    status.stats = Stats();
    status.refused = metrics_->RefusedCalls(status.stats.callers);
    status.calls = calls_->recent(status.now);
    return status;
  }

  ServerOptions options_;
  const std::string instance_id_ = NewInstanceId();
  const std::vector<std::unique_ptr<Backend>> backends_;
  const std::shared_ptr<GateLog> gate_log_ =
      std::make_shared<GateLog>(options_.log, options_.leave_out);
  const std::shared_ptr<TlsPeers> tls_peers_ = std::make_shared<TlsPeers>();
  std::unique_ptr<TokenStore> tokens_;  // null: none is known
  std::unique_ptr<TokenWatch> token_watch_;
  std::unique_ptr<Callers> callers_;
  const absl::Time started_ = MonotonicNow();
  Health health_;
  std::unique_ptr<Regions> regions_;  // what requests refer to; may be null
  std::unique_ptr<UsageWatch> usage_;
  std::unique_ptr<Scheduler> scheduler_;
  ConnectionTable connections_;
  std::shared_ptr<Metrics> metrics_;
  std::unique_ptr<SpanSink> spans_;  // null: nobody collects them
  std::unique_ptr<CallLog> calls_;
  AdmittedCalls admitted_calls_;
  std::unique_ptr<UploadRoom> uploads_;
  std::unique_ptr<MetricsServer> metrics_server_;
  std::unique_ptr<TransferTable> transfers_;
  std::unique_ptr<Service> service_;
  std::vector<std::unique_ptr<RawService>> small_services_;
  std::unique_ptr<IoThreads> io_threads_;
  std::unique_ptr<Alarms> alarms_;  // ends before what they ring
  int port_ = -1;
  std::unique_ptr<UnixSocketFile> unix_socket_;

  std::unique_ptr<grpc::Server> transport_;
  std::unique_ptr<LingeringClose> lingering_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<AdminServer> admin_;

  Mutex drain_mutex_;
  bool drained_ ABSL_GUARDED_BY(drain_mutex_) = false;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options,
    std::vector<std::unique_ptr<Backend>> backends) {
  absl::Status status = options.Validate();
  if (!status.ok()) return status;
  auto impl = std::make_unique<Impl>(options, std::move(backends));
  status = impl->Start();
  if (!status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
int Server::port() const { return impl_->port(); }
int Server::metrics_port() const { return impl_->metrics_port(); }
int Server::admin_port() const { return impl_->admin_port(); }
void Server::RemoveUnixSocket() { impl_->RemoveUnixSocket(); }
SchedulerStats Server::stats() const { return impl_->stats(); }
bool Server::IsQuiet() const { return impl_->IsQuiet(); }
void Server::ReleaseIdleMemory() { impl_->ReleaseIdleMemory(); }
std::vector<std::string> Server::Describe() const { return impl_->Describe(); }
void Server::Drain(absl::Duration drain_time) { impl_->Drain(drain_time); }

}  // namespace attnd::server
