#include "server/admin/status_page.h"

#include <nlohmann/json.hpp>
#include <numeric>

namespace attnd::server {
namespace {

// Members stay in the order in which they are named.
using Json = nlohmann::ordered_json;

Json Devices(const ServerStatus& status) {
  Json devices = Json::array();
  for (const attn::v1::Device& device : status.info.devices()) {
    devices.push_back({{"kind", device.kind()},
                       {"index", device.index()},
                       {"name", device.name()},
                       {"memory_bytes", device.memory_bytes()},
                       {"in_service", device.in_service()}});
  }
  return devices;
}

Json Limits(const ServerStatus& status) {
  const attn::v1::Limits& limits = status.info.limits();
  return {
      {"memory_limit_bytes", limits.memory_limit_bytes()},
      {"max_message_bytes", limits.max_message_bytes()},
      {"max_queue_requests", limits.max_queue_requests()},
      {"max_queue_flops", limits.max_queue_flops()},
      {"max_request_flops", limits.max_request_flops()},
      {"max_connections", status.facts.max_connections},
      {"max_connections_per_client", status.facts.max_connections_per_client}};
}

Json Queue(const SchedulerStats& scheduler) {
  return {{"requests", scheduler.queued_requests},
          {"flops", scheduler.queued_flops},
          {"running_requests", scheduler.running_requests}};
}

Json Memory(const ServerStatus& status) {
  return {{"account_bytes", status.stats.scheduler.account_bytes},
          {"account_limit_bytes", status.stats.scheduler.account_limit_bytes},
          {"upload_bytes", status.stats.uploads.reserved_bytes},
          {"uploads_waiting", status.stats.uploads.waiting},
          {"uploads_refused", status.stats.uploads.refused}};
}

Json Connections(const ConnectionStats& connections) {
  return {{"open", connections.open},
          {"accepted", connections.accepted},
          {"refused", std::accumulate(connections.refused.begin(),
                                      connections.refused.end(), int64_t{0})}};
}

Json Regions(const RegionStats& regions) {
  return {{"connections", regions.connections},
          {"leased_bytes", regions.leased_bytes},
          {"free_bytes", regions.free_bytes},
          {"imported_bytes", regions.imported_bytes}};
}

}  // namespace

std::string StatusJson(const ServerStatus& status) {
  Json features = Json::array();
  for (const std::string& feature : status.info.features()) {
    features.push_back(feature);
  }
  const Json page = {{"version", status.info.version()},
                     {"instance", status.info.server_instance_id()},
                     {"health", status.health},
                     {"uptime_seconds", absl::ToDoubleSeconds(status.uptime)},
                     {"features", std::move(features)},
                     {"devices", Devices(status)},
                     {"limits", Limits(status)},
                     {"queue", Queue(status.stats.scheduler)},
                     {"memory", Memory(status)},
                     {"connections", Connections(status.stats.connections)},
                     {"regions", Regions(status.stats.regions)}};
  // A device's name is the driver's: what is no UTF-8 in it is replaced.
  return page.dump(/*indent=*/2, /*indent_char=*/' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace) +
         "\n";
}

}  // namespace attnd::server
