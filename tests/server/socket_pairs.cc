#include "tests/server/socket_pairs.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "absl/time/time.h"
#include "server/net/listen.h"
#include "tests/hang_limit.h"

namespace attnd::server {

SocketPair UnixPair() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

SocketPair TcpPair() {
  auto listeners = ListenOnTcp("127.0.0.1", 0, absl::Seconds(10));
  EXPECT_TRUE(listeners.ok()) << listeners.status();
  const int listener = listeners->sockets.at(0).get();
  sockaddr_storage to = {};
  socklen_t size = sizeof(to);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&to), &size), 0);
  SocketPair pair;
  pair.client = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(pair.client.get(), reinterpret_cast<sockaddr*>(&to), size),
            0);
  EXPECT_TRUE(testing::Eventually([&] {
    pair.server = Descriptor(accept(listener, nullptr, nullptr));
    return pair.server.valid();
  }));
  return pair;
}

}  // namespace attnd::server
