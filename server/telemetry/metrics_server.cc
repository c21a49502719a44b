#include "server/telemetry/metrics_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "prometheus/text_serializer.h"
#include "server/net/address.h"

namespace attnd::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectionTime(10);
// How long the listener rests when the process has no descriptor to accept
// with, and no connection here to close for one.
constexpr std::chrono::milliseconds kRest(100);
// So that those accepted before get their turn.
constexpr int kAcceptsPerRound = 64;

std::string Answer(absl::string_view status, absl::string_view headers,
                   absl::string_view body, bool with_body = true) {
  return absl::StrCat(
      "HTTP/1.1 ", status, "\r\n", headers, "Content-Length: ", body.size(),
      "\r\nConnection: close\r\n\r\n", with_body ? body : absl::string_view());
}

std::string Refusal(absl::string_view status, absl::string_view headers = "") {
  return Answer(status, absl::StrCat(headers, "Content-Type: text/plain\r\n"),
                absl::StrCat(status, "\n"));
}

// `head` is a request up to the empty line that ends its headers.
std::string Respond(absl::string_view head,
                    const prometheus::Collectable& metrics) {
  const absl::string_view line = head.substr(0, head.find("\r\n"));
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/")) {
    return Refusal("400 Bad Request");
  }
  if (!absl::StartsWith(words[2], "HTTP/1.")) {
    return Refusal("505 HTTP Version Not Supported");
  }
  absl::string_view target = words[1];
  if (absl::ConsumePrefix(&target, "http://")) {
    target.remove_prefix(std::min(target.find('/'), target.size()));
  }
  if (target.substr(0, target.find('?')) != "/metrics") {
    return Refusal("404 Not Found");
  }
  if (words[0] != "GET" && words[0] != "HEAD") {
    return Refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
  }
  return Answer("200 OK",
                "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
                prometheus::TextSerializer().Serialize(metrics.Collect()),
                /*with_body=*/words[0] == "GET");
}

class Connection {
 public:
  Connection(Descriptor fd, Clock::time_point deadline)
      : fd_(std::move(fd)), deadline_(deadline) {}

  pollfd polled() const {
    return {fd_.get(),
            static_cast<int16_t>(state_ == State::kWriting ? POLLOUT : POLLIN),
            0};
  }
  Clock::time_point deadline() const { return deadline_; }

  // Goes as far as it can without waiting. False: it is over.
  bool Advance(const prometheus::Collectable& metrics) {
    switch (state_) {
      case State::kReading:
        return Read(metrics);
      case State::kWriting:
        return Write();
      case State::kClosing:
        break;
    }
    char ignored[4096];
    const ssize_t n = recv(fd_.get(), ignored, sizeof(ignored), 0);
    return n < 0 ? MayTryAgain() : n > 0;
  }

 private:
  // Closing with bytes of the peer unread would reset the connection, which
  // may take the answer from it: kClosing reads until the peer has closed.
  enum class State { kReading, kWriting, kClosing };

  static bool MayTryAgain() {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  }

  bool Read(const prometheus::Collectable& metrics) {
    char buffer[4096];
    const ssize_t n = recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (n <= 0) return n < 0 && MayTryAgain();
    bytes_.append(buffer, n);
    const size_t end = bytes_.find("\r\n\r\n");
    if (end != std::string::npos) {
      bytes_ = Respond(absl::string_view(bytes_).substr(0, end), metrics);
    } else if (bytes_.size() > kMaxMetricsRequestBytes) {
      bytes_ = Refusal("431 Request Header Fields Too Large");
    } else {
      return true;
    }
    state_ = State::kWriting;
    return Write();
  }

  bool Write() {
    const ssize_t n = send(fd_.get(), bytes_.data() + sent_,
                           bytes_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0) return MayTryAgain();
    sent_ += n;
    if (sent_ < bytes_.size()) return true;
    std::string().swap(bytes_);
    shutdown(fd_.get(), SHUT_WR);
    state_ = State::kClosing;
    return true;
  }

  Descriptor fd_;
  Clock::time_point deadline_;
  State state_ = State::kReading;
  std::string bytes_;  // of the request, then of its answer
  size_t sent_ = 0;
};

// Oldest first, and so first due.
using Connections = std::list<Connection>;

// Somebody waits to be accepted. False when the process has no descriptor left,
// and no connection of ours could give one.
bool Accept(int listener, Connections& connections) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    Descriptor fd(
        accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      if (connections.size() == kMaxMetricsConnections) connections.pop_front();
      connections.emplace_back(std::move(fd), Clock::now() + kConnectionTime);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
               errno == ENOMEM) {
      // Without a descriptor it fails whether or not anybody waits, but the
      // first time somebody does.
      if (i > 0) return true;
      if (connections.empty()) return false;
      connections.pop_front();
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    }  // else the peer has gone already
  }
  return true;
}

int MillisecondsUntil(Clock::time_point time) {
  return static_cast<int>(std::max<int64_t>(
      0, std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now())
             .count()));
}

void Serve(int listener, int stop, const prometheus::Collectable& metrics) {
  Connections connections;
  std::vector<pollfd> polled;
  bool resting = false;
  while (true) {
    polled.assign({{stop, POLLIN, 0}, {resting ? -1 : listener, POLLIN, 0}});
    for (const Connection& connection : connections) {
      polled.push_back(connection.polled());
    }
    int timeout = resting ? static_cast<int>(kRest.count()) : -1;
    if (!connections.empty()) {
      timeout = MillisecondsUntil(connections.front().deadline());
    }
    if (poll(polled.data(), polled.size(), timeout) < 0) continue;
    if (polled[0].revents != 0) return;
    auto state = polled.begin() + 2;
    const Clock::time_point now = Clock::now();
    connections.remove_if([&](Connection& connection) {
      const bool ready = (state++)->revents != 0;
      return (ready && !connection.Advance(metrics)) ||
             connection.deadline() <= now;
    });
    const bool due = resting || polled[1].revents != 0;
    resting = due && !Accept(listener, connections);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& host, int port,
    std::shared_ptr<const prometheus::Collectable> metrics) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(std::move(metrics)));
  if (absl::Status status = server->Listen(host, port); !status.ok()) {
    return status;
  }
  server->stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  if (!server->stop_.valid()) {
    return absl::ResourceExhaustedError("no descriptor to serve metrics with");
  }
  try {
    server->thread_ =
        std::thread(Serve, server->listener_.get(), server->stop_.get(),
                    std::cref(*server->metrics_));
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("no thread to serve metrics with");
  }
  return server;
}

MetricsServer::~MetricsServer() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

absl::Status MetricsServer::Listen(const std::string& host, int port) {
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
      listener_ = std::move(fd);
      port_ = ntohs(bound.sin6_port);
      return absl::OkStatus();
    }
    why = std::strerror(errno);
    if (errno == EADDRINUSE) break;  // not to be found on the other family
  }
  return absl::UnavailableError(absl::StrCat(
      "cannot listen on ", Address(host, port), " for metrics: ", why));
}

}  // namespace attnd::server
