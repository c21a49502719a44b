#ifndef ATTND_SERVER_TELEMETRY_METRICS_SERVER_H_
#define ATTND_SERVER_TELEMETRY_METRICS_SERVER_H_

// GET /metrics over HTTP/1.1, for Prometheus. prometheus-cpp's own server has a
// thread for each connection, so as many peers that send nothing keep everybody
// else out for its timeout. Here one thread polls all connections, and none of
// them can hold up another.

#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "prometheus/collectable.h"

namespace attnd::server {

// Connections at once. One more takes the place of the oldest.
inline constexpr int kMaxMetricsConnections = 256;
// A longer request is refused.
inline constexpr int kMaxMetricsRequestBytes = 8192;

// Every connection carries one request and is closed after its answer, or when
// it is 10 s old. Peers hold 256 times one answer of memory at most.
class MetricsServer {
 public:
  // Serves once it returns. `host` is an address, with or without brackets, or
  // a name, of which the first IPv4 address is preferred; `port` 0 is any free
  // one. `metrics` is asked at every scrape, on the server's thread.
  // UNAVAILABLE: the address cannot be had. RESOURCE_EXHAUSTED: no thread.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& host, int port,
      std::shared_ptr<const prometheus::Collectable> metrics);
  // Cuts what is open.
  ~MetricsServer();

  int port() const { return port_; }

 private:
  explicit MetricsServer(std::shared_ptr<const prometheus::Collectable> metrics)
      : metrics_(std::move(metrics)) {}
  absl::Status Listen(const std::string& host, int port);

  const std::shared_ptr<const prometheus::Collectable> metrics_;
  Descriptor listener_;
  Descriptor stop_;  // an eventfd, readable once it shall end
  int port_ = -1;
  std::thread thread_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_METRICS_SERVER_H_
