#ifndef ATTND_SERVER_TELEMETRY_METRICS_SERVER_H_
#define ATTND_SERVER_TELEMETRY_METRICS_SERVER_H_

// GET /metrics over HTTP/1.1, for Prometheus: an http_server.h with that page.

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "server/telemetry/http_server.h"

namespace attnd::server {

class MetricsServer {
 public:
  // Serves once it returns. `host` is an address, with or without brackets, or
  // a name, of which the first IPv4 address is preferred; `port` 0 is any free
  // one. `metrics` is asked at every scrape, on the server's thread.
  // UNAVAILABLE: the address cannot be had. RESOURCE_EXHAUSTED: no thread.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& host, int port,
      std::shared_ptr<const prometheus::Collectable> metrics);

  int port() const { return port_; }

 private:
  MetricsServer(std::unique_ptr<HttpServer> http, int port)
      : http_(std::move(http)), port_(port) {}

  const std::unique_ptr<HttpServer> http_;
  const int port_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_METRICS_SERVER_H_
