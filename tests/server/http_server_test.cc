#include "server/telemetry/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "server/net/listen.h"
#include "tests/hang_limit.h"

namespace attnd::server {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

void Send(const Descriptor& fd, const std::string& bytes) {
  (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// All until the server closes.
std::string Receive(const Descriptor& fd) {
  std::string all;
  char buffer[4096];
  ssize_t n = 0;
  while ((n = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0) {
    all.append(buffer, n);
  }
  return all;
}

// A server with a page, which says to whom it gives a connection.
class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    auto listeners = ListenOnTcp("127.0.0.1", 0, testing::kHangLimit);
    EXPECT_TRUE(listeners.ok()) << listeners.status();
    port_ = listeners->port;
    HttpServerOptions options;
    options.listeners = std::move(listeners->sockets);
    options.pages["/up"] = [] { return HttpPage{.body = "up\n"}; };
    options.pages["/down"] = [] {
      return HttpPage{.available = false, .body = "down\n"};
    };
    options.http2 = [](Descriptor connection) {
      // It does not block, and all of this has come.
      char first[64];
      const ssize_t n = recv(connection.get(), first, sizeof(first), 0);
      Send(connection, "handed over: " + std::string(first, n > 0 ? n : 0));
      shutdown(connection.get(), SHUT_WR);
    };
    auto server = HttpServer::Start(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  Descriptor Connect() const {
    Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval timeout = absl::ToTimeval(testing::kHangLimit);
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port_);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
              0);
    return fd;
  }
  std::string Ask(const std::string& request) const {
    const Descriptor fd = Connect();
    Send(fd, request);
    return Receive(fd);
  }

  int port_ = -1;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ShowsPagesThatAreAvailableOrNot) {
  const std::string up = Ask("GET /up HTTP/1.1\r\n\r\n");
  EXPECT_THAT(up, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(up, EndsWith("\r\n\r\nup\n"));
  const std::string down = Ask("GET /down HTTP/1.1\r\n\r\n");
  EXPECT_THAT(down, StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(down, EndsWith("\r\n\r\ndown\n"));
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(HttpServerTest, HandsHttp2OverWithNothingOfItRead) {
  EXPECT_EQ(Ask("PRI * HTTP/2.0\r\n"), "handed over: PRI * HTTP/2.0\r\n");
}

TEST_F(HttpServerTest, HandsHttp2OverThatComesInPieces) {
  const Descriptor fd = Connect();
  for (const char* piece : {"P", "R", "I"}) Send(fd, piece);
  EXPECT_EQ(Receive(fd), "handed over: PRI");
}

TEST_F(HttpServerTest, WhatBeginsLikeItIsStillARequest) {
  EXPECT_THAT(Ask("PUT /up HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("PROPFIND /up HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
}

TEST_F(HttpServerTest, APeerThatEndsWithinTheFirstBytesIsLetGo) {
  const Descriptor fd = Connect();
  Send(fd, "PR");
  shutdown(fd.get(), SHUT_WR);
  EXPECT_EQ(Receive(fd), "");
  EXPECT_THAT(Ask("GET /up HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace attnd::server
