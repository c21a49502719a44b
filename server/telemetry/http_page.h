#ifndef ATTND_SERVER_TELEMETRY_HTTP_PAGE_H_
#define ATTND_SERVER_TELEMETRY_HTTP_PAGE_H_

// What is shown over HTTP/1.1, and how a request for it is answered. No sockets
// in here.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "prometheus/collectable.h"

namespace attnd::server {

struct HttpPage {
  bool available = true;  // or 503, with what follows
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// By path ("/metrics"); called at every request, on the server's thread.
using HttpPages = std::map<std::string, std::function<HttpPage()>, std::less<>>;

// The answer to a request, from its head: up to, and without, the empty line
// that ends its headers. It ends the connection.
std::string AnswerHttp(absl::string_view head, const HttpPages& pages);

// The answer that refuses a request: `status` is its code and reason.
std::string RefuseHttp(absl::string_view status,
                       absl::string_view headers = "");

// For Prometheus.
std::function<HttpPage()> MetricsPage(
    std::shared_ptr<const prometheus::Collectable> metrics);

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_HTTP_PAGE_H_
