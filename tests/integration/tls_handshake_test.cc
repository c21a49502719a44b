// Clients that begin a TLS handshake and do not end it.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/hang_limit.h"
#include "tests/integration/http2_socket.h"
#include "tests/integration/tls_serving.h"

namespace attnd::testing {
namespace {

using TlsHandshakeTest = TlsServingTest;

// A connection on which that is all that comes from the client.
Descriptor Stalling(const std::string& address, const std::string& sent) {
  Descriptor fd(ConnectedSocket(address));
  SendBytes(fd.get(), sent);
  return fd;
}

// Reads until the server has closed it; false: it has not within kHangLimit.
bool IsClosed(const Descriptor& fd) {
  char bytes[4096];
  ssize_t n = 0;
  while ((n = recv(fd.get(), bytes, sizeof(bytes), 0)) > 0) {
  }
  return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

// How a handshake may stall: before its first byte, within a record's header,
// within the first message, and once the server has answered that.
std::vector<std::string> Stalls() {
  const std::string hello = ClientHello();
  return {"", hello.substr(0, 3), hello.substr(0, hello.size() / 2), hello};
}

TEST_F(TlsHandshakeTest, OneThatStallsIsClosed) {
  StartMutual({"--header_time=300ms"});
  for (const std::string& sent : Stalls()) {
    EXPECT_TRUE(IsClosed(Stalling(process_->tcp(), sent))) << sent.size();
  }
  EXPECT_TRUE(process_->AwaitLog("no TLS with 127.0.0.1: it took too long"));
  EXPECT_EQ(Metric("attnd_tls_handshakes_total"), 0);
  EXPECT_TRUE(Eventually([&] { return Metric("attnd_connections") == 0; }));
}

TEST_F(TlsHandshakeTest, TwoHundredAtOnceHoldNobodyUp) {
  StartMutual({"--header_time=1h"});
  const std::vector<std::string> stalls = Stalls();
  std::vector<Descriptor> peers;
  for (int i = 0; i < 200; ++i) {
    peers.push_back(Stalling(process_->tcp(), stalls[i % stalls.size()]));
  }
  EXPECT_TRUE(Eventually([&] { return Metric("attnd_connections") == 200; }));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Call(Trusting(ForClient("alice"))), absl::OkStatus());
  }
  TlsPeer peer(process_->tcp(), RawTrusting(ForClient("bob")));
  EXPECT_TRUE(peer.Handshake() && peer.IsServed());
  EXPECT_EQ(Metric("attnd_tls_handshakes_total"), 11);
  // None has been given up in the meantime, and none stays when its peer goes.
  EXPECT_EQ(Metric("attnd_tls_handshakes_failed_total"), 0);
  peers.clear();
  EXPECT_TRUE(Eventually(
      [&] { return Metric("attnd_tls_handshakes_failed_total") == 200; }));
}

TEST_F(TlsHandshakeTest, NonsenseIsRefusedAtOnce) {
  Start({"--header_time=1h"});
  std::string flipped = ClientHello();
  flipped[5] = 2;  // the server's hello, from a client
  for (const std::string& sent :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(4096, '\0'),
        std::string(4096, '\xff'), flipped}) {
    EXPECT_TRUE(IsClosed(Stalling(process_->tcp(), sent)));
  }
  EXPECT_EQ(Call(Trusting()), absl::OkStatus());
}

}  // namespace
}  // namespace attnd::testing
