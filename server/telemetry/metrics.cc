#include "server/telemetry/metrics.h"

#include <iterator>
#include <utility>

#include "server/config/version.h"

namespace attnd::server {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr const char* kMethodNames[] = {"Forward", "Backward", "GetServerInfo",
                                        "Exchange"};
constexpr const char* kPhaseNames[] = {"queue", "upload", "compute",
                                       "download"};
// By Refusal; the first two are the flags'.
constexpr const char* kRefusalNames[] = {
    "max_connections", "max_connections_per_client", "descriptors"};
static_assert(std::size(kRefusalNames) == kRefusals);
// By CallRefusal, and then what the scheduler counts; the limits are the
// flags'.
constexpr const char* kCallRefusalNames[] = {
    "no_identity", "token", "max_client_rate", "max_client_queue_bytes",
    "max_client_queue_flops"};
static_assert(std::size(kCallRefusalNames) == kCallRefusals + 2);
// By RegionRefusal.
constexpr const char* kRegionRefusalNames[] = {
    "request",         "user",   "connections",
    "descriptors",     "memory", "limit_of_user",
    "rate_of_imports", "device", "draining"};
static_assert(std::size(kRegionRefusalNames) == kRegionRefusals);

// 10 us to 50 s, three a decade.
Histogram::BucketBoundaries Seconds() {
  constexpr double kDecades[] = {1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10};
  Histogram::BucketBoundaries bounds;
  for (const double decade : kDecades) {
    bounds.insert(bounds.end(), {decade, 2 * decade, 5 * decade});
  }
  return bounds;
}

Histogram::BucketBoundaries Sizes() {
  return {1, 2, 4, 8, 16, 32, 64, 128, 256};
}

MetricFamily Gauge(const char* name, const char* help, double value) {
  MetricFamily family{name, help, MetricType::Gauge, {}};
  family.metric.emplace_back().gauge.value = value;
  return family;
}

// What has been counted elsewhere.
MetricFamily Count(const char* name, const char* help, double value) {
  MetricFamily family{name, help, MetricType::Counter, {}};
  family.metric.emplace_back().counter.value = value;
  return family;
}

constexpr std::pair<http2::ErrorCode, const char*> kCutCodes[] = {
    {http2::ErrorCode::kProtocolError, "protocol_error"},
    {http2::ErrorCode::kFlowControlError, "flow_control_error"},
    {http2::ErrorCode::kSettingsTimeout, "settings_timeout"},
    {http2::ErrorCode::kStreamClosed, "stream_closed"},
    {http2::ErrorCode::kFrameSizeError, "frame_size_error"},
    {http2::ErrorCode::kCompressionError, "compression_error"},
    {http2::ErrorCode::kEnhanceYourCalm, "enhance_your_calm"},
};

}  // namespace

Metrics::Metrics(std::vector<std::string> devices,
                 std::function<SchedulerStats()> stats,
                 std::function<UploadStats()> uploads,
                 std::function<ConnectionStats()> connections,
                 std::function<RegionStats()> regions,
                 std::function<CallerStats()> callers,
                 std::function<GateStats()> gate)
    : devices_(std::move(devices)),
      stats_(std::move(stats)),
      uploads_(std::move(uploads)),
      connections_(std::move(connections)),
      regions_(std::move(regions)),
      callers_(std::move(callers)),
      gate_(std::move(gate)) {
  auto& calls =
      BuildCounter()
          .Name("attnd_requests_total")
          .Help(
              "Calls that arrived whole and ended, by method and the code "
              "that the client got, its own where it gave up")
          .Register(registry_);
  auto& duration = BuildHistogram()
                       .Name("attnd_request_duration_seconds")
                       .Help("From the whole request to the response sent")
                       .Register(registry_);
  auto& phases = BuildHistogram()
                     .Name("attnd_phase_duration_seconds")
                     .Help("Time of requests that ran, by phase")
                     .Register(registry_);
  auto& received = BuildCounter()
                       .Name("attnd_received_bytes_total")
                       .Help("Bytes of request messages")
                       .Register(registry_);
  auto& sent = BuildCounter()
                   .Name("attnd_sent_bytes_total")
                   .Help("Bytes of response messages")
                   .Register(registry_);
  auto& flops = BuildCounter()
                    .Name("attnd_floating_point_operations_total")
                    .Help("Floating-point operations of requests that ran")
                    .Register(registry_);
  batch_requests_ = &BuildHistogram()
                         .Name("attnd_batch_requests")
                         .Help("Requests in the group that a request ran in")
                         .Register(registry_)
                         .Add({}, Sizes());
  for (int i = 0; i < kMethods; ++i) {
    const prometheus::Labels method = {{"method", kMethodNames[i]}};
    PerMethod& m = methods_[i];
    for (int code = 0; code < kCodes; ++code) {
      prometheus::Labels labels = method;
      labels["code"] =
          code == 0
              ? "OK"
              : absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
      m.calls[code] = &calls.Add(labels);
    }
    m.duration = &duration.Add(method, Seconds());
    m.received = &received.Add(method);
    m.sent = &sent.Add(method);
    const bool computes = static_cast<Method>(i) == Method::kForward ||
                          static_cast<Method>(i) == Method::kBackward;
    if (!computes) continue;
    m.flops = &flops.Add(method);
    for (int phase = 0; phase < kPhases; ++phase) {
      prometheus::Labels labels = method;
      labels["phase"] = kPhaseNames[phase];
      m.phases[phase] = &phases.Add(labels, Seconds());
    }
  }
}

void Metrics::CallEnded(Method method, absl::StatusCode code,
                        absl::Duration total, int64_t received_bytes,
                        int64_t sent_bytes) {
  PerMethod& m = methods_[static_cast<int>(method)];
  const int index = static_cast<int>(code);
  m.calls[index >= 0 && index < kCodes
              ? index
              : static_cast<int>(absl::StatusCode::kUnknown)]
      ->Increment();
  m.duration->Observe(absl::ToDoubleSeconds(total));
  m.received->Increment(static_cast<double>(received_bytes));
  m.sent->Increment(static_cast<double>(sent_bytes));
}

void Metrics::WorkDone(Method method, const Phases& phases, int batch_requests,
                       double flops) {
  PerMethod& m = methods_[static_cast<int>(method)];
  const absl::Duration times[kPhases] = {phases.queue, phases.upload,
                                         phases.compute, phases.download};
  for (int i = 0; i < kPhases; ++i) {
    m.phases[i]->Observe(absl::ToDoubleSeconds(times[i]));
  }
  m.flops->Increment(flops);
  batch_requests_->Observe(batch_requests);
}

std::vector<MetricFamily> Metrics::Collect() const {
  std::vector<MetricFamily> families = registry_.Collect();
  AddGauges(families);
  AddConnections(families);
  AddRefusedCalls(families);
  AddGate(families);
  AddRegions(families);
  return families;
}

void Metrics::AddGauges(std::vector<MetricFamily>& to) const {
  const SchedulerStats stats = stats_();
  to.push_back(Gauge("attnd_queue_requests", "Requests that wait for a device",
                     stats.queued_requests));
  to.push_back(Gauge("attnd_queue_floating_point_operations",
                     "Floating-point operations that wait for a device",
                     stats.queued_flops));
  to.push_back(Gauge("attnd_running_requests", "Requests on a device now",
                     stats.running_requests));
  to.push_back(Gauge("attnd_account_bytes",
                     "Memory that admitted requests hold",
                     stats.account_bytes));
  to.push_back(Gauge("attnd_account_limit_bytes",
                     "The most that attnd_account_bytes may reach",
                     stats.account_limit_bytes));
  const UploadStats uploads = uploads_();
  to.push_back(Gauge("attnd_upload_bytes",
                     "Memory kept for request messages on their way",
                     uploads.reserved_bytes));
  to.push_back(Gauge("attnd_uploads_waiting",
                     "Request messages that wait to be read", uploads.waiting));
  to.push_back(Count("attnd_uploads_refused_total",
                     "Calls refused before their message was read, or while "
                     "it was, as there was no memory",
                     static_cast<double>(uploads.refused)));
  MetricFamily in_service{"attnd_device_in_service",
                          "1 while the device takes work, 0 after a fault",
                          MetricType::Gauge,
                          {}};
  for (size_t i = 0; i < devices_.size(); ++i) {
    auto& metric = in_service.metric.emplace_back();
    metric.label.push_back({"device", devices_[i]});
    metric.gauge.value =
        i < stats.device_in_service.size() && stats.device_in_service[i];
  }
  to.push_back(std::move(in_service));
  MetricFamily build = Gauge("attnd_build_info", "Always 1", 1);
  build.metric[0].label.push_back({"version", kVersion});
  to.push_back(std::move(build));
}

void Metrics::AddConnections(std::vector<MetricFamily>& to) const {
  const ConnectionStats stats = connections_();
  to.push_back(
      Gauge("attnd_connections", "Connections that are open", stats.open));
  to.push_back(Count("attnd_accepted_connections_total",
                     "Connections that were taken in",
                     static_cast<double>(stats.accepted)));
  MetricFamily refused{"attnd_refused_connections_total",
                       "Connections that were closed as they came, by why",
                       MetricType::Counter,
                       {}};
  for (int i = 0; i < kRefusals; ++i) {
    auto& metric = refused.metric.emplace_back();
    metric.label.push_back({"reason", kRefusalNames[i]});
    metric.counter.value = static_cast<double>(stats.refused[i]);
  }
  to.push_back(std::move(refused));
}

void Metrics::AddRefusedCalls(std::vector<MetricFamily>& to) const {
  const CallerStats callers = callers_();
  const SchedulerStats scheduler = stats_();
  std::vector<int64_t> counts(callers.refused.begin(), callers.refused.end());
  counts.push_back(scheduler.refused_by_client_bytes);
  counts.push_back(scheduler.refused_by_client_flops);
  MetricFamily refused{"attnd_refused_calls_total",
                       "Calls of clients that may not call, or that have what "
                       "a client may have, by why",
                       MetricType::Counter,
                       {}};
  for (size_t i = 0; i < counts.size(); ++i) {
    auto& metric = refused.metric.emplace_back();
    metric.label.push_back({"reason", kCallRefusalNames[i]});
    metric.counter.value = static_cast<double>(counts[i]);
  }
  to.push_back(std::move(refused));
}

void Metrics::AddGate(std::vector<MetricFamily>& to) const {
  const GateStats stats = gate_();
  MetricFamily cut{"attnd_cut_connections_total",
                   "Connections that broke HTTP/2's rules or flooded, by the "
                   "error that they were told",
                   MetricType::Counter,
                   {}};
  for (const auto& [code, name] : kCutCodes) {
    auto& metric = cut.metric.emplace_back();
    metric.label.push_back({"code", name});
    const auto at = stats.cut.find(code);
    metric.counter.value =
        at == stats.cut.end() ? 0 : static_cast<double>(at->second);
  }
  to.push_back(std::move(cut));
  to.push_back(Count("attnd_tls_handshakes_total",
                     "TLS handshakes that were done",
                     static_cast<double>(stats.tls_handshakes)));
  to.push_back(Count("attnd_tls_handshakes_failed_total",
                     "TLS handshakes that failed or took too long",
                     static_cast<double>(stats.tls_handshakes_failed)));
  to.push_back(Count("attnd_tls_renewals_total",
                     "Times that the certificate, its key or the roots of "
                     "clients were renewed",
                     static_cast<double>(stats.tls_renewals)));
  to.push_back(Count("attnd_tls_ended_connections_total",
                     "Connections of clients whose certificates have expired, "
                     "or are not known since a renewal",
                     static_cast<double>(stats.tls_peers_ended)));
}

void Metrics::AddRegions(std::vector<MetricFamily>& to) const {
  const RegionStats stats = regions_();
  to.push_back(Gauge("attnd_region_connections",
                     "Connections to the region socket", stats.connections));
  to.push_back(Gauge("attnd_region_leases",
                     "Regions of host memory whose memory is not back yet",
                     static_cast<double>(stats.leases)));
  to.push_back(Gauge("attnd_region_leased_bytes",
                     "Memory of attnd_region_leases",
                     static_cast<double>(stats.leased_bytes)));
  to.push_back(Gauge("attnd_region_free_bytes",
                     "Host memory in regions that can be leased now",
                     static_cast<double>(stats.free_bytes)));
  to.push_back(Gauge("attnd_region_imports",
                     "Regions of clients' memory on GPUs",
                     static_cast<double>(stats.imports)));
  to.push_back(Gauge("attnd_region_imported_bytes",
                     "Memory of attnd_region_imports",
                     static_cast<double>(stats.imported_bytes)));
  to.push_back(Count("attnd_region_slabs_replaced_total",
                     "Regions of host memory made for those given back",
                     static_cast<double>(stats.replaced)));
  to.push_back(Count("attnd_region_pinned_pieces_total",
                     "Pieces of host memory that were pinned for regions, at "
                     "the start or for those given back",
                     static_cast<double>(stats.pinned_pieces)));
  MetricFamily refused{"attnd_region_refused_total",
                       "Regions that somebody asked for and did not get, or "
                       "lost as it broke the rules, by why",
                       MetricType::Counter,
                       {}};
  for (int i = 0; i < kRegionRefusals; ++i) {
    auto& metric = refused.metric.emplace_back();
    metric.label.push_back({"reason", kRegionRefusalNames[i]});
    metric.counter.value = static_cast<double>(stats.refused[i]);
  }
  to.push_back(std::move(refused));
}

}  // namespace attnd::server
