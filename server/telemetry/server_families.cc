#include "server/telemetry/server_families.h"

#include <iterator>

#include "server/config/version.h"

namespace attnd::server {
namespace {

using prometheus::MetricType;

// By Refusal; the first two are the flags'.
constexpr const char* kRefusalNames[] = {
    "max_connections", "max_connections_per_client", "descriptors"};
static_assert(std::size(kRefusalNames) == kRefusals);
// By RegionRefusal.
constexpr const char* kRegionRefusalNames[] = {
    "request",         "user",   "connections",
    "descriptors",     "memory", "limit_of_user",
    "rate_of_imports", "device", "draining"};
static_assert(std::size(kRegionRefusalNames) == kRegionRefusals);
// By LogSource.
constexpr const char* kSourceNames[] = {"server", "libraries", "calls"};
static_assert(std::size(kSourceNames) == kLogSources);

constexpr std::pair<http2::ErrorCode, const char*> kCutCodes[] = {
    {http2::ErrorCode::kProtocolError, "protocol_error"},
    {http2::ErrorCode::kFlowControlError, "flow_control_error"},
    {http2::ErrorCode::kSettingsTimeout, "settings_timeout"},
    {http2::ErrorCode::kStreamClosed, "stream_closed"},
    {http2::ErrorCode::kFrameSizeError, "frame_size_error"},
    {http2::ErrorCode::kCompressionError, "compression_error"},
    {http2::ErrorCode::kEnhanceYourCalm, "enhance_your_calm"},
};

double ToDouble(int64_t count) { return static_cast<double>(count); }

void AddScheduler(const ServerFacts& facts, const SchedulerStats& stats,
                  Families& to) {
  to.Gauge("attnd_queue_requests", "Requests that wait for a device",
           ToDouble(stats.queued_requests));
  to.Gauge("attnd_max_queue_requests",
           "The most that attnd_queue_requests may reach",
           ToDouble(facts.max_queue_requests));
  to.Gauge("attnd_queue_floating_point_operations",
           "Floating-point operations that wait for a device",
           stats.queued_flops);
  to.Gauge("attnd_max_queue_floating_point_operations",
           "The most that attnd_queue_floating_point_operations may reach",
           facts.max_queue_flops);
  to.Gauge("attnd_queue_oldest_seconds",
           "How long the request has waited that waits longest, of those that "
           "have not begun",
           absl::ToDoubleSeconds(stats.queued_longest));
  to.Gauge("attnd_running_requests", "Requests on a device now",
           ToDouble(stats.running_requests));
  to.Gauge("attnd_account_bytes", "Memory that admitted requests hold",
           ToDouble(stats.account_bytes));
  to.Gauge("attnd_account_limit_bytes",
           "The most that attnd_account_bytes may reach",
           ToDouble(stats.account_limit_bytes));
  to.Gauge("attnd_memory_limit_bytes", "The flag --memory_limit",
           ToDouble(facts.memory_limit_bytes));
  to.Gauge("attnd_draining", "1 once the server takes no new requests",
           stats.draining ? 1 : 0);
}

void AddDevices(const ServerFacts& facts, const ServerStats& stats,
                Families& to) {
  const auto each = [&facts](auto add) {
    for (size_t i = 0; i < facts.devices.size(); ++i) {
      add(i, Families::Label{"device", facts.devices[i].label});
    }
  };
  to.Begin("attnd_device_info", "Always 1", MetricType::Gauge);
  each([&](size_t i, const Families::Label& device) {
    to.Add({device, {"model", facts.devices[i].model}}, 1);
  });
  const std::vector<bool>& in_service = stats.scheduler.device_in_service;
  to.Begin("attnd_device_in_service",
           "1 while the device takes work, 0 after a fault", MetricType::Gauge);
  each([&](size_t i, const Families::Label& device) {
    to.Add({device}, i < in_service.size() && in_service[i]);
  });
  const std::vector<LaneStats>& lanes = stats.scheduler.lanes;
  to.Begin("attnd_lanes", "Groups of requests that the device takes at once",
           MetricType::Gauge);
  each([&](size_t i, const Families::Label& device) {
    to.Add({device}, i < lanes.size() ? lanes[i].lanes : 0);
  });
  to.Begin("attnd_lane_busy_seconds_total",
           "Time that the device's lanes had a group, of all lanes together",
           MetricType::Counter);
  each([&](size_t i, const Families::Label& device) {
    to.Add({device},
           i < lanes.size() ? absl::ToDoubleSeconds(lanes[i].busy_time) : 0);
  });
  to.Begin("attnd_lane_longest_seconds",
           "How long the group runs that has run longest, of those that the "
           "device's lanes have now",
           MetricType::Gauge);
  each([&](size_t i, const Families::Label& device) {
    to.Add({device},
           i < lanes.size() ? absl::ToDoubleSeconds(lanes[i].longest) : 0);
  });
  const auto each_gpu = [&](const char* name, const char* help, auto value) {
    to.Begin(name, help, MetricType::Gauge);
    each([&](size_t i, const Families::Label& device) {
      if (i >= stats.usage.size() || !stats.usage[i].has_value()) return;
      const std::optional<double> number = value(*stats.usage[i]);
      if (number.has_value()) to.Add({device}, *number);
    });
  };
  each_gpu("attnd_gpu_utilization_ratio",
           "Part of the driver's last sampling period in which any kernel ran, "
           "anybody's",
           [](const DeviceUsage& usage) { return usage.utilization; });
  each_gpu("attnd_gpu_memory_used_bytes", "Memory in use on the GPU, anybody's",
           [](const DeviceUsage& usage) {
             return std::optional(ToDouble(usage.memory_used_bytes));
           });
  each_gpu("attnd_gpu_memory_total_bytes", "Memory of the GPU",
           [](const DeviceUsage& usage) {
             return std::optional(ToDouble(usage.memory_total_bytes));
           });
}

void AddUploads(const UploadStats& stats, Families& to) {
  to.Gauge("attnd_upload_bytes",
           "Memory kept for request messages on their way",
           ToDouble(stats.reserved_bytes));
  to.Gauge("attnd_upload_limit_bytes",
           "The most that attnd_upload_bytes may reach",
           ToDouble(stats.limit_bytes));
  to.Gauge("attnd_uploads_waiting", "Request messages that wait to be read",
           ToDouble(stats.waiting));
  to.Counter("attnd_uploads_refused_total",
             "Calls refused before their message was read, or while it was, as "
             "there was no memory",
             ToDouble(stats.refused));
}

void AddConnections(const ServerFacts& facts, const ConnectionStats& stats,
                    Families& to) {
  to.Gauge("attnd_connections", "Connections that are open",
           ToDouble(stats.open));
  to.Gauge("attnd_max_connections", "The most that attnd_connections may reach",
           facts.max_connections);
  to.Counter("attnd_accepted_connections_total",
             "Connections that were taken in", ToDouble(stats.accepted));
  to.Begin("attnd_refused_connections_total",
           "Connections that were closed as they came, by why",
           MetricType::Counter);
  for (int i = 0; i < kRefusals; ++i) {
    to.Add({{"reason", kRefusalNames[i]}}, ToDouble(stats.refused[i]));
  }
}

void AddGate(const ServerStats& stats, Families& to) {
  const GateStats& gate = stats.gate;
  to.Begin(
      "attnd_cut_connections_total",
      "Connections that broke HTTP/2's rules or flooded, by the error that "
      "they were told",
      MetricType::Counter);
  for (const auto& [code, name] : kCutCodes) {
    const auto at = gate.cut.find(code);
    to.Add({{"code", name}}, at == gate.cut.end() ? 0 : ToDouble(at->second));
  }
  to.Counter("attnd_tls_handshakes_total", "TLS handshakes that were done",
             ToDouble(gate.tls_handshakes));
  to.Counter("attnd_tls_handshakes_failed_total",
             "TLS handshakes that failed or took too long",
             ToDouble(gate.tls_handshakes_failed));
  to.Counter("attnd_tls_renewals_total",
             "Times that the certificate, its key or the roots of clients were "
             "renewed",
             ToDouble(gate.tls_renewals));
  to.Counter(
      "attnd_tls_ended_connections_total",
      "Connections of clients whose certificates have expired, or are not "
      "known since a renewal",
      ToDouble(gate.tls_peers_ended));
  const auto maybe = [&to](const char* name, const char* help,
                           std::optional<double> value) {
    to.Begin(name, help, MetricType::Gauge);
    if (value.has_value()) to.Add({}, *value);
  };
  maybe("attnd_tls_files_good",
        "0 while the files of the certificate, its key or clients' roots are "
        "not good, so that what they were before counts",
        gate.tls_files_good);
  maybe("attnd_token_file_good",
        "0 while the file of tokens is not good, so that what it was before "
        "counts",
        stats.token_file_good);
  std::optional<double> end;
  if (gate.certificate_end.has_value()) {
    end = static_cast<double>(absl::ToUnixSeconds(*gate.certificate_end));
  }
  maybe("attnd_tls_certificate_expiry_seconds",
        "When the first certificate of the server's chain ends, in seconds "
        "since 1970",
        end);
}

void AddRegions(const RegionStats& stats, Families& to) {
  to.Gauge("attnd_region_connections", "Connections to the region socket",
           ToDouble(stats.connections));
  to.Gauge("attnd_region_leases",
           "Regions of host memory whose memory is not back yet",
           ToDouble(stats.leases));
  to.Gauge("attnd_region_leased_bytes", "Memory of attnd_region_leases",
           ToDouble(stats.leased_bytes));
  to.Gauge("attnd_region_free_bytes",
           "Host memory in regions that can be leased now",
           ToDouble(stats.free_bytes));
  to.Gauge("attnd_region_imports", "Regions of clients' memory on GPUs",
           ToDouble(stats.imports));
  to.Gauge("attnd_region_imported_bytes", "Memory of attnd_region_imports",
           ToDouble(stats.imported_bytes));
  to.Counter("attnd_region_slabs_replaced_total",
             "Regions of host memory made for those given back",
             ToDouble(stats.replaced));
  to.Counter("attnd_region_pinned_pieces_total",
             "Pieces of host memory that were pinned for regions, at the start "
             "or for those given back",
             ToDouble(stats.pinned_pieces));
  to.Begin(
      "attnd_region_refused_total",
      "Regions that somebody asked for and did not get, or lost as it broke "
      "the rules, by why",
      MetricType::Counter);
  for (int i = 0; i < kRegionRefusals; ++i) {
    to.Add({{"reason", kRegionRefusalNames[i]}}, ToDouble(stats.refused[i]));
  }
}

void AddLog(const LogStats& lines, Families& to) {
  to.Begin(
      "attnd_log_lines_left_out_total",
      "Lines that are not in the log: as whoever caused them has no budget "
      "for more, or as its reader does not keep up",
      MetricType::Counter);
  for (int i = 0; i < kLogSources; ++i) {
    to.Add({{"source", kSourceNames[i]}, {"reason", "budget"}},
           ToDouble(lines[i].by_owner));
    to.Add({{"source", kSourceNames[i]}, {"reason", "reader"}},
           ToDouble(lines[i].by_reader));
  }
}

}  // namespace

void AddServerFamilies(const ServerFacts& facts, const ServerStats& stats,
                       Families& to) {
  to.Begin("attnd_build_info", "Always 1", MetricType::Gauge);
  to.Add({{"version", kVersion}}, 1);
  AddScheduler(facts, stats.scheduler, to);
  AddDevices(facts, stats, to);
  AddUploads(stats.uploads, to);
  AddConnections(facts, stats.connections, to);
  AddGate(stats, to);
  AddRegions(stats.regions, to);
  AddLog(stats.log, to);
}

}  // namespace attnd::server
