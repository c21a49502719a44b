#include "server/telemetry/http_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <list>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace attnd::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectionTime(10);
// How long the listeners rest when the process has no descriptor to accept
// with, and no connection here to close for one.
constexpr std::chrono::milliseconds kRest(100);
// So that those accepted before get their turn.
constexpr int kAcceptsPerRound = 64;
// How a connection of HTTP/2 begins, and no request of HTTP/1.1.
constexpr absl::string_view kHttp2 = "PRI";

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
  bool Advance(const HttpServerOptions& options) {
    switch (state_) {
      case State::kFirstBytes:
        return Tell(options);
      case State::kReading:
        return Read(options.pages);
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
  enum class State : uint8_t { kFirstBytes, kReading, kWriting, kClosing };

  static bool MayTryAgain() {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  }

  // Which HTTP the peer speaks, from its first bytes, which are left where they
  // are.
  bool Tell(const HttpServerOptions& options) {
    char first[kHttp2.size()];
    const ssize_t n = recv(fd_.get(), first, sizeof(first), MSG_PEEK);
    if (n <= 0) return n < 0 && MayTryAgain();
    const absl::string_view seen(first, n);
    if (!options.http2 || !absl::StartsWith(kHttp2, seen)) {
      state_ = State::kReading;
      return Read(options.pages);
    }
    if (seen.size() < kHttp2.size()) {
      // Once the system has been told to wait for as many, fewer are the last.
      return !std::exchange(wants_all_, true) && WaitFor(kHttp2.size());
    }
    if (wants_all_ && !WaitFor(1)) return false;
    options.http2(std::move(fd_));
    return false;
  }

  bool WaitFor(int bytes) {
    return setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes,
                      sizeof(bytes)) == 0;
  }

  bool Read(const HttpPages& pages) {
    char buffer[4096];
    const ssize_t n = recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (n <= 0) return n < 0 && MayTryAgain();
    bytes_.append(buffer, n);
    const size_t end = bytes_.find("\r\n\r\n");
    if (end != std::string::npos) {
      bytes_ = AnswerHttp(absl::string_view(bytes_).substr(0, end), pages);
    } else if (bytes_.size() > kMaxHttpRequestBytes) {
      bytes_ = RefuseHttp("431 Request Header Fields Too Large");
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
  State state_ = State::kFirstBytes;
  bool wants_all_ = false;
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
      if (connections.size() == kMaxHttpConnections) connections.pop_front();
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

void Serve(const HttpServerOptions& options, int stop) {
  Connections connections;
  std::vector<pollfd> polled;
  bool resting = false;
  const size_t first_connection = 1 + options.listeners.size();
  while (true) {
    polled.assign({{stop, POLLIN, 0}});
    for (const Descriptor& listener : options.listeners) {
      polled.push_back({resting ? -1 : listener.get(), POLLIN, 0});
    }
    for (const Connection& connection : connections) {
      polled.push_back(connection.polled());
    }
    int timeout = resting ? static_cast<int>(kRest.count()) : -1;
    if (!connections.empty()) {
      timeout = MillisecondsUntil(connections.front().deadline());
    }
    if (poll(polled.data(), polled.size(), timeout) < 0) continue;
    if (polled[0].revents != 0) return;
    auto state = polled.begin() + static_cast<int64_t>(first_connection);
    const Clock::time_point now = Clock::now();
    connections.remove_if([&](Connection& connection) {
      const bool ready = (state++)->revents != 0;
      return (ready && !connection.Advance(options)) ||
             connection.deadline() <= now;
    });
    const bool rested = std::exchange(resting, false);
    for (size_t i = 0; i < options.listeners.size(); ++i) {
      const bool due = rested || polled[1 + i].revents != 0;
      if (due && !Accept(options.listeners[i].get(), connections)) {
        resting = true;
      }
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    HttpServerOptions options) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(options)));
  server->stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  if (!server->stop_.valid()) {
    return absl::ResourceExhaustedError("no descriptor to serve HTTP with");
  }
  try {
    server->thread_ =
        std::thread(Serve, std::cref(server->options_), server->stop_.get());
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("no thread to serve HTTP with");
  }
  return server;
}

HttpServer::~HttpServer() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

}  // namespace attnd::server
