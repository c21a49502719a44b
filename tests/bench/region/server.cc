#include "tests/bench/region/server.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/attnd_peer.h"
#include "tests/bench/require.h"
#include "tests/hang_limit.h"
#include "tests/integration/http_get.h"

namespace attnd::bench {

MeasuredServer::MeasuredServer(const RegionBenchOptions& options,
                               std::vector<std::string> flags) {
  if (!options.server.empty()) {
    target_ = options.server;
    region_socket_ = options.region_socket;
    pid_ = options.server_pid;
    metrics_port_ = options.metrics_port;
    return;
  }
  region_socket_ = folder_.File("regions");
  flags.push_back("--device=" + options.device);
  flags.push_back("--region_socket=" + region_socket_);
  flags.push_back("--metrics_port=0");
  own_ = Get(testing::ServerProcess::Start(ATTND_BINARY, flags));
  target_ = own_->unix_socket();
  pid_ = own_->pid();
  metrics_port_ = own_->metrics_port();
}

double MeasuredServer::Metric(const std::string& series) const {
  const auto value =
      testing::MetricValue(testing::HttpGet(metrics_port_, "/metrics"), series);
  if (!value.has_value()) {
    Require(absl::NotFoundError("the server has no metric " + series));
  }
  return *value;
}

void MeasuredServer::AwaitMetric(const std::string& series,
                                 double value) const {
  if (testing::Eventually([&] { return Metric(series) == value; })) return;
  Require(absl::DeadlineExceededError(absl::StrCat(
      series, " is ", Metric(series), " and does not become ", value)));
}

CopyingServer::CopyingServer(int64_t region_bytes)
    : process_({"--serve", "--socket=" + folder_.File("socket"),
                "--region_socket=" + folder_.File("regions"),
                absl::StrCat("--region_bytes=", region_bytes)}) {}

void ServeCopyingByRegion(const std::string& socket,
                          const std::string& region_socket, int64_t bytes) {
  server::RegionOptions regions;
  regions.socket = region_socket;
  regions.memory_bytes = regions.slab_bytes = bytes;
  ServeAttndCopying(/*long_links=*/false, socket, regions);
}

}  // namespace attnd::bench
