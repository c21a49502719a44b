#include "server/admin/status_page.h"

#include "server/admin/json.h"

namespace attnd::server {
namespace {

void AddDevices(const ServerStatus& status, JsonWriter& json) {
  json.Array("devices");
  for (const attn::v1::Device& device : status.info.devices()) {
    json.Object("");
    json.Add("kind", device.kind());
    json.Add("index", device.index());
    json.Add("name", device.name());
    json.Add("memory_bytes", int64_t{device.memory_bytes()});
    json.Add("in_service", device.in_service());
    json.Close();
  }
  json.Close();
}

void AddLimits(const ServerStatus& status, JsonWriter& json) {
  const attn::v1::Limits& limits = status.info.limits();
  json.Object("limits");
  json.Add("memory_limit_bytes", int64_t{limits.memory_limit_bytes()});
  json.Add("max_message_bytes", int64_t{limits.max_message_bytes()});
  json.Add("max_queue_requests", int64_t{limits.max_queue_requests()});
  json.Add("max_queue_flops", limits.max_queue_flops());
  json.Add("max_request_flops", limits.max_request_flops());
  json.Add("max_connections", status.max_connections);
  json.Add("max_connections_per_client", status.max_connections_per_client);
  json.Close();
}

void AddLoad(const ServerStatus& status, JsonWriter& json) {
  json.Object("queue");
  json.Add("requests", status.scheduler.queued_requests);
  json.Add("flops", status.scheduler.queued_flops);
  json.Add("running_requests", status.scheduler.running_requests);
  json.Close();
  json.Object("memory");
  json.Add("account_bytes", status.scheduler.account_bytes);
  json.Add("account_limit_bytes", status.scheduler.account_limit_bytes);
  json.Add("upload_bytes", status.uploads.reserved_bytes);
  json.Add("uploads_waiting", status.uploads.waiting);
  json.Add("uploads_refused", status.uploads.refused);
  json.Close();
  json.Object("connections");
  json.Add("open", status.connections.open);
  json.Add("accepted", status.connections.accepted);
  int64_t refused = 0;
  for (const int64_t count : status.connections.refused) refused += count;
  json.Add("refused", refused);
  json.Close();
  json.Object("regions");
  json.Add("connections", status.regions.connections);
  json.Add("leased_bytes", status.regions.leased_bytes);
  json.Add("free_bytes", status.regions.free_bytes);
  json.Add("imported_bytes", status.regions.imported_bytes);
  json.Close();
}

}  // namespace

std::string StatusJson(const ServerStatus& status) {
  JsonWriter json;
  json.Add("version", status.info.version());
  json.Add("instance", status.info.server_instance_id());
  json.Add("health", status.health);
  json.Add("uptime_seconds", absl::ToDoubleSeconds(status.uptime));
  json.Array("features");
  for (const std::string& feature : status.info.features()) {
    json.Add("", feature);
  }
  json.Close();
  AddDevices(status, json);
  AddLimits(status, json);
  AddLoad(status, json);
  return json.Take();
}

}  // namespace attnd::server
