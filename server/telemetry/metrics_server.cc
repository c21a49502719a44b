#include "server/telemetry/metrics_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "server/net/address.h"

namespace attnd::server {
namespace {

struct Listener {
  Descriptor socket;
  int port = -1;
};

// The first address of `host`, of IPv4 if it has any.
absl::StatusOr<Listener> Listen(const std::string& host, int port) {
  std::string why;
  for (const int family : {AF_INET, AF_INET6}) {
    addrinfo hints = {};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(std::string(BareHost(host)).c_str(),
                                  std::to_string(port).c_str(), &hints, &found);
    if (error != 0) {
      if (why.empty()) why = gai_strerror(error);
      continue;
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(
        found, freeaddrinfo);
    Descriptor fd(
        socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in6 bound = {};  // the port is where sockaddr_in has it
    socklen_t size = sizeof(bound);
    if (bind(fd.get(), address->ai_addr, address->ai_addrlen) == 0 &&
        listen(fd.get(), SOMAXCONN) == 0 &&
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) ==
            0) {
      return Listener{std::move(fd), ntohs(bound.sin6_port)};
    }
    why = std::strerror(errno);
    if (errno == EADDRINUSE) break;  // not to be found on the other family
  }
  return absl::UnavailableError(absl::StrCat(
      "cannot listen on ", Address(host, port), " for metrics: ", why));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& host, int port,
    std::shared_ptr<const prometheus::Collectable> metrics) {
  absl::StatusOr<Listener> listener = Listen(host, port);
  if (!listener.ok()) return listener.status();
  HttpServerOptions options;
  options.listeners.push_back(std::move(listener->socket));
  options.pages["/metrics"] = MetricsPage(std::move(metrics));
  auto http = HttpServer::Start(std::move(options));
  if (!http.ok()) return http.status();
  return std::unique_ptr<MetricsServer>(
      new MetricsServer(*std::move(http), listener->port));
}

}  // namespace attnd::server
