#include "server/net/listen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kUnacknowledged = absl::Milliseconds(12345);

TcpListeners Listen(const std::string& host, int port = 0) {
  auto listeners = ListenOnTcp(host, port, kUnacknowledged);
  EXPECT_TRUE(listeners.ok()) << listeners.status();
  return listeners.ok() ? *std::move(listeners) : TcpListeners();
}

std::string Refusal(const std::string& host, int port = 0) {
  const absl::Status status = ListenOnTcp(host, port, kUnacknowledged).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  return std::string(status.message());
}

int Option(const Descriptor& fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(getsockopt(fd.get(), level, name, &value, &size), 0);
  return value;
}

// Connected to a port of 127.0.0.1 or, with `family` AF_INET6, of ::1; not
// valid: nobody listens there.
Descriptor Connect(int family, int port) {
  Descriptor fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  const int result =
      family == AF_INET
          ? connect(fd.get(), reinterpret_cast<sockaddr*>(&v4), sizeof(v4))
          : connect(fd.get(), reinterpret_cast<sockaddr*>(&v6), sizeof(v6));
  return result == 0 ? std::move(fd) : Descriptor();
}

bool HasIPv6() { return ListenOnTcp("::1", 0, kUnacknowledged).ok(); }

TEST(ListenOnTcp, WhatIsAcceptedHasItsOptions) {
  const TcpListeners listeners = Listen("127.0.0.1");
  ASSERT_EQ(listeners.sockets.size(), 1);
  ASSERT_GT(listeners.port, 0);
  const Descriptor client = Connect(AF_INET, listeners.port);
  ASSERT_TRUE(client.valid());
  const Descriptor accepted(
      accept(listeners.sockets[0].get(), nullptr, nullptr));
  ASSERT_TRUE(accepted.valid());
  EXPECT_EQ(Option(accepted, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(Option(accepted, IPPROTO_TCP, TCP_USER_TIMEOUT), 12345);
}

TEST(ListenOnTcp, DoesNotBlock) {
  const TcpListeners listeners = Listen("127.0.0.1");
  EXPECT_EQ(accept(listeners.sockets.at(0).get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(ListenOnTcp, APortThatSomeoneHasIsAnError) {
  const TcpListeners first = Listen("127.0.0.1");
  EXPECT_EQ(Refusal("127.0.0.1", first.port),
            absl::StrCat("cannot listen on 127.0.0.1:", first.port,
                         ": Address already in use"));
  // Also where a name has other addresses besides, and as one of all.
  EXPECT_THAT(Refusal("localhost", first.port), HasSubstr("in use"));
  EXPECT_THAT(Refusal("0.0.0.0", first.port), HasSubstr("in use"));
}

// While connections of a server before are still to leave.
TEST(ListenOnTcp, APortIsFreeOnceItsServerHasGone) {
  TcpListeners first = Listen("127.0.0.1");
  const int port = first.port;
  Descriptor client = Connect(AF_INET, port);
  ASSERT_TRUE(client.valid());
  // The server's end closes first, and so is the one that lingers.
  Descriptor accepted(accept(first.sockets[0].get(), nullptr, nullptr));
  accepted = Descriptor();
  client = Descriptor();
  first = TcpListeners();
  EXPECT_EQ(Listen("127.0.0.1", port).port, port);
}

TEST(ListenOnTcp, ANameIsAllOfItsAddresses) {
  const TcpListeners listeners = Listen("localhost");
  EXPECT_TRUE(Connect(AF_INET, listeners.port).valid() ||
              Connect(AF_INET6, listeners.port).valid());
  for (const Descriptor& socket : listeners.sockets) {
    sockaddr_in6 bound = {};
    socklen_t size = sizeof(bound);
    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size);
    EXPECT_EQ(ntohs(bound.sin6_port), listeners.port);
  }
}

TEST(ListenOnTcp, ListensOnIPv6) {
  if (!HasIPv6()) GTEST_SKIP() << "this machine has no IPv6";
  for (const char* host : {"::1", "[::1]"}) {
    const TcpListeners listeners = Listen(host);
    EXPECT_TRUE(Connect(AF_INET6, listeners.port).valid());
    EXPECT_FALSE(Connect(AF_INET, listeners.port).valid());
  }
}

TEST(ListenOnTcp, AnyAddressIsThatOfBothKinds) {
  for (const char* host : {"0.0.0.0", "::", "[::]"}) {
    const TcpListeners listeners = Listen(host);
    EXPECT_EQ(listeners.sockets.size(), 1);
    EXPECT_TRUE(Connect(AF_INET, listeners.port).valid()) << host;
    if (HasIPv6()) {
      EXPECT_TRUE(Connect(AF_INET6, listeners.port).valid()) << host;
    }
  }
}

TEST(ListenOnTcp, ReachesIPv6ThatIsMappedFromIPv4) {
  if (!HasIPv6()) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_TRUE(Connect(AF_INET, Listen("::ffff:127.0.0.1").port).valid());
}

TEST(ListenOnTcp, AnAddressOfAnotherMachineIsNamed) {
  // RFC 5737: no machine has it.
  EXPECT_EQ(Refusal("192.0.2.1", 7411),
            "cannot listen on 192.0.2.1:7411: Cannot assign requested address");
  EXPECT_THAT(Refusal("no.such.name.invalid", 7411),
              HasSubstr("cannot listen on no.such.name.invalid:7411: "));
}

}  // namespace
}  // namespace attnd::server
