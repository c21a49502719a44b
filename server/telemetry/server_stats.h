#ifndef ATTND_SERVER_TELEMETRY_SERVER_STATS_H_
#define ATTND_SERVER_TELEMETRY_SERVER_STATS_H_

// What the parts of a server count, all of it seen at one time: for metrics and
// for the pages that operators look at.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "server/config/log_stats.h"
#include "server/identity/callers.h"
#include "server/net/connection_table.h"
#include "server/net/gate_stats.h"
#include "server/region/region_stats.h"
#include "server/scheduling/scheduler.h"

namespace attnd::server {

// Messages that are received (front/upload_room.h).
struct UploadStats {
  int64_t reserved_bytes = 0;
  int64_t limit_bytes = 0;  // the most that reserved_bytes may reach
  int64_t waiting = 0;
  int64_t refused = 0;  // since the start
};

struct ServerStats {
  SchedulerStats scheduler;
  UploadStats uploads;
  ConnectionStats connections;
  RegionStats regions;
  CallerStats callers;
  GateStats gate;
  // As GateStats::tls_files_good, of the file of tokens.
  std::optional<bool> token_file_good;
  LogStats log;
  // By device; empty for those that cannot tell, as a processor.
  std::vector<std::optional<DeviceUsage>> usage;
};

// What stays as it is.
struct ServerFacts {
  struct Device {
    std::string label;  // see DeviceLabel
    std::string model;  // as the vendor calls it
  };

  std::vector<Device> devices;
  int64_t memory_limit_bytes = 0;
  int max_connections = 0, max_connections_per_client = 0;
  int64_t max_queue_requests = 0;
  double max_queue_flops = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_SERVER_STATS_H_
