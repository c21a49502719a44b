#include "tests/integration/reset_proxy.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <utility>

namespace attnd::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// Ends a connection with RST, whatever is under way: what a peer that crashed,
// or a middlebox, does.
void Reset(int socket) {
  sockaddr nowhere = {};
  nowhere.sa_family = AF_UNSPEC;
  connect(socket, &nowhere, sizeof nowhere);
}

}  // namespace

struct ResetProxy::Pair {
  ~Pair() {
    close(client);
    close(server);
  }
  void ResetBoth() {
    Reset(client);
    Reset(server);
    // Wakes whoever reads.
    shutdown(client, SHUT_RDWR);
    shutdown(server, SHUT_RDWR);
  }

  int index = 0;
  int client = -1, server = -1;
};

ResetProxy::ResetProxy(int port) : server_port_(port) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(listener_, any, size), 0);
  EXPECT_EQ(getsockname(listener_, any, &size), 0);
  EXPECT_EQ(listen(listener_, 64), 0);
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { Accept(); });
}

ResetProxy::~ResetProxy() {
  shutdown(listener_, SHUT_RDWR);
  accepting_.join();
  close(listener_);
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    for (const auto& pair : pairs_) pair->ResetBoth();
    threads = std::move(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void ResetProxy::ResetAfter(int index, int64_t bytes, bool back) {
  MutexLock lock(mutex_);
  limits_[index] = {bytes, back};
}

int ResetProxy::connections() const {
  MutexLock lock(mutex_);
  return static_cast<int>(pairs_.size());
}

int ResetProxy::resets() const {
  MutexLock lock(mutex_);
  return resets_;
}

int64_t ResetProxy::sent() const {
  MutexLock lock(mutex_);
  return sent_;
}

void ResetProxy::Accept() {
  for (;;) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    auto pair = std::make_shared<Pair>();
    pair->client = client;
    pair->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(server_port_);
    if (connect(pair->server, reinterpret_cast<const sockaddr*>(&address),
                sizeof address) != 0) {
      continue;  // the client sees it end
    }
    const int on = 1;
    for (int socket : {pair->client, pair->server}) {
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    MutexLock lock(mutex_);
    pair->index = static_cast<int>(pairs_.size());
    pairs_.push_back(pair);
    for (bool back : {false, true}) {
      threads_.emplace_back([this, pair, back] { Pump(pair, back); });
    }
  }
}

void ResetProxy::Pump(const std::shared_ptr<Pair>& pair, bool back) {
  const int from = back ? pair->server : pair->client;
  const int to = back ? pair->client : pair->server;
  std::vector<char> buffer(256 << 10);
  int64_t passed = 0;
  for (;;) {
    const ssize_t got = recv(from, buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    int64_t left = got;
    bool resets = false;
    {
      MutexLock lock(mutex_);
      const auto limit = limits_.find(pair->index);
      if (limit != limits_.end() && limit->second.back == back &&
          passed + got >= limit->second.bytes) {
        left = std::max<int64_t>(0, limit->second.bytes - passed);
        resets = true;
        ++resets_;
        limits_.erase(limit);
      }
      if (!back) sent_ += left;
    }
    passed += left;
    for (const char* at = buffer.data(); left > 0;) {
      const ssize_t sent = send(to, at, left, MSG_NOSIGNAL);
      if (sent <= 0) break;
      at += sent;
      left -= sent;
    }
    if (left > 0) break;
    if (resets) return pair->ResetBoth();
  }
  // Either side's end is the other's.
  shutdown(to, SHUT_WR);
}

}  // namespace attnd::testing
