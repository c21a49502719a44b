#include "server/server.h"

#include <algorithm>
#include <mutex>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "attn/v1/attention.grpc.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "kernels/attention.h"
#include "prometheus/exposer.h"
#include "server/admitted_calls.h"
#include "server/metrics.h"
#include "server/service.h"
#include "server/version.h"

namespace attnd::server {
namespace {

// How long, after the drain time, responses may take to leave.
constexpr absl::Duration kLastResponses = absl::Milliseconds(500);

constexpr int64_t kPreferredChunkBytes = int64_t{2} << 20;

std::string RandomId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&id, "%08x", random());
  return id;
}

std::string Address(const std::string& host, int port) {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

std::string DeviceLabel(const DeviceInfo& device) {
  return absl::StrCat(device.kind, ":", device.index);
}

// What a usual forward runs as.
std::string KernelName(const Backend& backend) {
  RequestSpec spec;
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    spec.inputs[id].emplace().shape = {1, 1, 1, 64};
  }
  const auto request = Request::Create(std::move(spec));
  if (!request.ok()) return "";
  const auto bound = (*request)->Bind({}, nullptr);
  return backend.Kernel(Op::kForward, bound->forward.at(0).problem, {}).name;
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

attn::v1::GetServerInfoResponse MakeInfo(
    const ServerOptions& options,
    const std::vector<std::unique_ptr<Backend>>& backends) {
  attn::v1::GetServerInfoResponse info;
  info.set_server_instance_id(RandomId());
  info.set_version(kVersion);
  for (const auto& backend : backends) {
    const DeviceInfo& from = backend->device();
    attn::v1::Device& to = *info.add_devices();
    to.set_kind(from.kind);
    to.set_index(from.index);
    to.set_name(from.name);
    to.set_memory_bytes(from.memory_bytes);
  }
  attn::v1::Limits& limits = *info.mutable_limits();
  limits.set_max_message_bytes(options.max_message_bytes);
  limits.set_memory_limit_bytes(options.memory_limit_bytes);
  limits.set_max_queue_requests(options.scheduler.max_queue_requests);
  limits.set_max_queue_flops(options.scheduler.max_queue_flops);
  limits.set_max_request_flops(options.scheduler.max_request_flops);
  limits.set_max_head_dim(kMaxHeadDim);
  info.set_preferred_chunk_bytes(kPreferredChunkBytes);
  return info;
}

void SetLimits(const ServerOptions& options, grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("attnd");
  quota.Resize(DivideMemory(options.memory_limit_bytes).transport_bytes);
  // Only reflection is synchronous, a thread a call.
  quota.SetMaxThreads(8);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  // A small compressed message could grow to any size.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  const std::pair<const char*, int> arguments[] = {
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_streams_per_connection},
      {GRPC_ARG_MAX_METADATA_SIZE,
       static_cast<int>(options.max_metadata_bytes)},
#ifdef GRPC_ARG_MAX_ALLOWED_INCOMING_CONNECTIONS
      {GRPC_ARG_MAX_ALLOWED_INCOMING_CONNECTIONS,
       options.max_connections.value_or(1024)},
#endif
      {GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time)},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout)},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      // Clients may ping as often as tests do; a ping costs next to nothing.
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 250},
      // A port that someone has is an error.
      {GRPC_ARG_ALLOW_REUSEPORT, 0},
  };
  for (const auto& [name, value] : arguments) {
    builder.AddChannelArgument(name, value);
  }
}

}  // namespace

class Server::Impl {
 public:
  explicit Impl(const ServerOptions& options,
                std::vector<std::unique_ptr<Backend>> backends)
      : options_(options), backends_(std::move(backends)) {
    const MemoryShares shares = DivideMemory(options_.memory_limit_bytes);
    options_.scheduler.memory_bytes = shares.account_bytes;
    if (options_.max_message_bytes == 0) {
      options_.max_message_bytes = shares.max_message_bytes;
    }
  }

  ~Impl() {
    Drain(absl::ZeroDuration());
    if (transport_ == nullptr) return;
    transport_->Shutdown(absl::ToChronoTime(absl::Now() + kLastResponses));
  }

  absl::Status Start() {
    absl::Status status = StartScheduler();
    if (status.ok()) status = StartMetrics();
    if (status.ok()) status = StartTransport();
    return status;
  }

  void Drain(absl::Duration drain_time) {
    std::lock_guard one_at_a_time(drain_mutex_);
    if (drained_) return;
    drained_ = true;
    const absl::Time deadline = absl::Now() + drain_time;
    {
      std::lock_guard lock(health_mutex_);
      draining_ = true;
      UpdateHealth();
    }
    if (scheduler_ != nullptr) scheduler_->Drain(deadline);
    admitted_calls_.WaitForNone(std::max(deadline, absl::Now()) +
                                kLastResponses);
  }

  std::vector<std::string> Describe() const;
  int port() const { return port_; }
  int metrics_port() const { return metrics_port_; }
  SchedulerStats stats() const { return scheduler_->stats(); }

 private:
  absl::Status StartScheduler() {
    std::vector<Backend*> devices;
    std::vector<std::string> labels;
    for (const auto& backend : backends_) {
      devices.push_back(backend.get());
      labels.push_back(DeviceLabel(backend->device()));
    }
    devices_left_ = static_cast<int>(devices.size());
    auto scheduler = Scheduler::Create(
        options_.scheduler, std::move(devices),
        [this](int /*device*/, const absl::Status& /*fault*/) {
          std::lock_guard lock(health_mutex_);
          --devices_left_;
          UpdateHealth();
        });
    if (!scheduler.ok()) return scheduler.status();
    scheduler_ = *std::move(scheduler);
    metrics_ = std::make_shared<Metrics>(
        std::move(labels), [this] { return scheduler_->stats(); });
    return absl::OkStatus();
  }

  absl::Status StartMetrics() {
    if (options_.metrics_port < 0) return absl::OkStatus();
    const std::string address = Address(options_.host, options_.metrics_port);
    // Its only report of a port that is taken is an exception.
    try {
      exposer_ = std::make_unique<prometheus::Exposer>(address);
    } catch (const std::exception&) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address, " for metrics"));
    }
    exposer_->RegisterCollectable(metrics_);
    metrics_port_ = exposer_->GetListeningPorts().at(0);
    return absl::OkStatus();
  }

  absl::Status StartTransport() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    service_ = std::make_unique<Service>(
        ServiceParts{scheduler_.get(), metrics_.get(), &admitted_calls_},
        MakeInfo(options_, backends_));
    grpc::ServerBuilder builder;
    SetLimits(options_, builder);
    builder.RegisterService(service_.get());
    std::vector<std::string> addresses;
    int port = 0;
    if (options_.port >= 0) {
      addresses.push_back(Address(options_.host, options_.port));
      builder.AddListeningPort(addresses.back(),
                               grpc::InsecureServerCredentials(), &port);
    }
    if (!options_.unix_socket.empty()) {
      addresses.push_back(absl::StrCat("unix:", options_.unix_socket));
      builder.AddListeningPort(addresses.back(),
                               grpc::InsecureServerCredentials());
    }
    auto transport = builder.BuildAndStart();
    if (transport == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", absl::StrJoin(addresses, " and ")));
    }
    if (options_.port >= 0) port_ = port;
    std::lock_guard lock(health_mutex_);
    transport_ = std::move(transport);
    UpdateHealth();
    return absl::OkStatus();
  }

  // health_mutex_ is held.
  void UpdateHealth() {
    if (transport_ == nullptr) return;
    const bool serving = !draining_ && devices_left_ > 0;
    grpc::HealthCheckServiceInterface* health =
        transport_->GetHealthCheckService();
    health->SetServingStatus(serving);  // "" and every name set so far
    health->SetServingStatus(attn::v1::AttentionService::service_full_name(),
                             serving);
  }

  ServerOptions options_;
  const std::vector<std::unique_ptr<Backend>> backends_;
  std::unique_ptr<Scheduler> scheduler_;
  std::shared_ptr<Metrics> metrics_;
  AdmittedCalls admitted_calls_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  std::unique_ptr<Service> service_;
  int port_ = -1;
  int metrics_port_ = -1;

  std::mutex health_mutex_;
  bool draining_ = false;
  int devices_left_ = 0;
  std::unique_ptr<grpc::Server> transport_;

  std::mutex drain_mutex_;
  bool drained_ = false;
};

std::vector<std::string> Server::Impl::Describe() const {
  std::vector<std::string> lines = {absl::StrCat("attnd ", kVersion)};
  for (const auto& backend : backends_) {
    const DeviceInfo& device = backend->device();
    lines.push_back(absl::StrFormat(
        "device %s %s, %d MiB, kernels %s", DeviceLabel(device), device.name,
        device.memory_bytes >> 20, KernelName(*backend)));
  }
  const SchedulerOptions& s = options_.scheduler;
  const MemoryShares shares = DivideMemory(options_.memory_limit_bytes);
  lines.push_back(absl::StrFormat(
      "memory limit %d MiB: %d MiB for requests that arrive, %d MiB for those "
      "admitted; messages up to %d MiB",
      options_.memory_limit_bytes >> 20, shares.transport_bytes >> 20,
      shares.account_bytes >> 20, options_.max_message_bytes >> 20));
  lines.push_back(absl::StrFormat(
      "%d lanes a device; queue of %d requests, %g FLOPs; up to %g FLOPs a "
      "request; batch delay %s",
      s.lanes_per_device, s.max_queue_requests, s.max_queue_flops,
      s.max_request_flops, absl::FormatDuration(s.max_batch_delay)));
  if (port_ >= 0) {
    lines.push_back("listening on " + Address(options_.host, port_));
  }
  if (!options_.unix_socket.empty()) {
    lines.push_back("listening on unix:" + options_.unix_socket);
  }
  if (metrics_port_ >= 0) {
    lines.push_back("metrics on http://" +
                    Address(options_.host, metrics_port_) + "/metrics");
  }
  return lines;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options,
    std::vector<std::unique_ptr<Backend>> backends) {
  absl::Status status = options.Validate();
  if (!status.ok()) return status;
#ifndef GRPC_ARG_MAX_ALLOWED_INCOMING_CONNECTIONS
  if (options.max_connections.has_value()) {
    return absl::InvalidArgumentError(
        "--max_connections: this gRPC cannot limit connections; 1.57 and later "
        "can");
  }
#endif
  auto impl = std::make_unique<Impl>(options, std::move(backends));
  status = impl->Start();
  if (!status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
int Server::port() const { return impl_->port(); }
int Server::metrics_port() const { return impl_->metrics_port(); }
SchedulerStats Server::stats() const { return impl_->stats(); }
std::vector<std::string> Server::Describe() const { return impl_->Describe(); }
void Server::Drain(absl::Duration drain_time) { impl_->Drain(drain_time); }

}  // namespace attnd::server
