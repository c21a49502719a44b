#ifndef ATTND_SERVER_TELEMETRY_HTTP_SERVER_H_
#define ATTND_SERVER_TELEMETRY_HTTP_SERVER_H_

// Shows pages over HTTP/1.1. A server with a thread for each connection would
// let as many peers that send nothing keep everybody else out for its timeout.
// Here one thread polls all connections, and none of them can hold up another.

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "server/telemetry/http_page.h"

namespace attnd::server {

// Connections at once. One more takes the place of the oldest.
inline constexpr int kMaxHttpConnections = 256;
// A longer request is refused.
inline constexpr int kMaxHttpRequestBytes = 8192;

struct HttpServerOptions {
  // To accept on; none of them blocks.
  std::vector<Descriptor> listeners;
  HttpPages pages;
  // Who gets connections that begin as HTTP/2 does ("PRI"), with nothing of
  // them read. On the server's thread, which waits for it. Empty: they are
  // refused as the others' HTTP versions are.
  std::function<void(Descriptor)> http2;
};

// Every connection carries one request and is closed after its answer, or when
// it is 10 s old. Peers hold 256 times one answer of memory at most.
class HttpServer {
 public:
  // Serves once it returns. RESOURCE_EXHAUSTED: no thread or no descriptor.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      HttpServerOptions options);
  // Cuts what is open.
  ~HttpServer();

 private:
  explicit HttpServer(HttpServerOptions options)
      : options_(std::move(options)) {}

  const HttpServerOptions options_;
  Descriptor stop_;  // an eventfd, readable once it shall end
  std::thread thread_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_HTTP_SERVER_H_
