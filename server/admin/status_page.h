#ifndef ATTND_SERVER_ADMIN_STATUS_PAGE_H_
#define ATTND_SERVER_ADMIN_STATUS_PAGE_H_

// A server at a glance, for operators and their scripts. No gRPC in here.

#include <string>

#include "absl/time/time.h"
#include "attn/v1/attention.pb.h"
#include "server/net/connection_table.h"
#include "server/region/region_stats.h"
#include "server/scheduling/scheduler.h"
#include "server/telemetry/metrics.h"

namespace attnd::server {

struct ServerStatus {
  std::string health;  // Health::Describe
  absl::Duration uptime;
  // As GetServerInfo has it.
  attn::v1::GetServerInfoResponse info;
  SchedulerStats scheduler;
  UploadStats uploads;
  ConnectionStats connections;
  int max_connections = 0;
  int max_connections_per_client = 0;
  RegionStats regions;
};

// An object of JSON, indented, with a line break at its end. Bytes, counts and
// seconds are numbers; names stay what they are once they are there.
std::string StatusJson(const ServerStatus& status);

}  // namespace attnd::server

#endif  // ATTND_SERVER_ADMIN_STATUS_PAGE_H_
