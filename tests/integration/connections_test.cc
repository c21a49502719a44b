// attnd's connections: how many there may be, what becomes of those beyond
// that, which are closed for doing nothing, and which are not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attnd/client.h"
#include "base/descriptor.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tests/hang_limit.h"
#include "tests/integration/http2_bytes.h"
#include "tests/integration/http2_socket.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"

namespace attnd::testing {
namespace {

using ::testing::HasSubstr;

// A client's part of HTTP/2 before its first call.
std::string Greeting() {
  return absl::StrCat(kPreface, Frame(kSettings, 0, 0));
}

// Reads until the server has closed it; false: it did not.
bool IsClosed(const Descriptor& fd) {
  char bytes[4096];
  ssize_t n = 0;
  while ((n = recv(fd.get(), bytes, sizeof(bytes), 0)) > 0) {
  }
  return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

// Whether the server has a word to say, as gRPC does first of all.
bool IsServed(const Descriptor& fd) {
  char byte = 0;
  return recv(fd.get(), &byte, 1, 0) == 1;
}

class ConnectionsTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags) {
    flags.insert(flags.end(),
                 {"--threads=1", "--memory_limit=128MiB", "--metrics_port=0"});
    auto process = ServerProcess::Start(ATTND_BINARY, flags);
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
    ASSERT_TRUE(process_->AwaitLog("metrics on"));
  }
  // A connection from 127.0.0.`host`, which sends `bytes`.
  Descriptor Connected(int host, absl::string_view bytes) const {
    Descriptor fd(TryToConnect(process_->tcp(), host));
    EXPECT_TRUE(fd.valid());
    SendBytes(fd.get(), bytes);
    return fd;
  }
  // How many descriptors the server may have from now on.
  void LimitDescriptors(rlim_t most) {
    rlimit limit = {};
    ASSERT_EQ(prlimit(process_->pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
    limit.rlim_cur = most;
    ASSERT_EQ(prlimit(process_->pid(), RLIMIT_NOFILE, &limit, nullptr), 0);
  }
  double Open() const { return process_->Metric("attnd_connections"); }
  double Refused(const std::string& reason) const {
    return process_->Metric(absl::StrCat(
        "attnd_refused_connections_total{reason=\"", reason, "\"}"));
  }
  // Of a call on a connection of its own.
  std::string Health() const {
    return attnd::testing::Health(Connect(process_->tcp()));
  }

  std::unique_ptr<ServerProcess> process_;
};

TEST_F(ConnectionsTest, ThoseOfOneClientAreLimited) {
  Start({"--max_connections_per_client=2", "--header_time=1h"});
  const Descriptor first = Connected(1, kPreface);
  EXPECT_TRUE(IsServed(first));
  auto second = Connect(process_->tcp());
  EXPECT_EQ(attnd::testing::Health(second), "SERVING");
  // An honest client is told at once.
  EXPECT_THAT(Health(), HasSubstr("UNAVAILABLE"));
  EXPECT_GE(Refused("max_connections_per_client"), 1);
  EXPECT_TRUE(
      process_->AwaitLog("refused a connection of 127.0.0.1: it has as many as "
                         "--max_connections_per_client allows"));
  // Others have their own, and what it has goes on.
  EXPECT_TRUE(IsServed(Connected(2, kPreface)));
  EXPECT_EQ(attnd::testing::Health(Connect(process_->unix_socket())),
            "SERVING");
  EXPECT_EQ(attnd::testing::Health(second), "SERVING");
  second = nullptr;
  EXPECT_TRUE(Eventually([&] { return Health() == "SERVING"; }));
}

TEST_F(ConnectionsTest, ThoseOfAllAreLimited) {
  Start({"--max_connections=3", "--header_time=1h"});
  std::vector<Descriptor> peers;
  for (int host = 1; host <= 3; ++host) {
    peers.push_back(Connected(host, kPreface));
    EXPECT_TRUE(IsServed(peers.back()));
  }
  EXPECT_TRUE(IsClosed(Connected(4, kPreface)));
  EXPECT_EQ(Refused("max_connections"), 1);
  EXPECT_EQ(Open(), 3);
  EXPECT_EQ(process_->Metric("attnd_accepted_connections_total"), 3);
  EXPECT_TRUE(process_->AwaitLog(
      "refused a connection of 127.0.0.4: as many are open as "
      "--max_connections allows"));
  peers.pop_back();
  EXPECT_TRUE(Eventually([&] { return IsServed(Connected(4, kPreface)); }));
}

// gRPC's own listener never accepted again after that (CVE-2023-4785).
TEST_F(ConnectionsTest, MoreThanDescriptorsDoNotEndTheServer) {
  Start({"--header_time=1h"});
  const auto channel = Connect(process_->tcp());
  EXPECT_EQ(attnd::testing::Health(channel), "SERVING");
  LimitDescriptors(process_->usage().descriptors + 8);
  std::vector<Descriptor> peers;
  for (int i = 0; i < 64; ++i) peers.push_back(Connected(1, kPreface));
  // None waits in vain.
  int served = 0;
  for (const Descriptor& peer : peers) {
    const bool is_served = IsServed(peer);
    served += is_served;
    EXPECT_TRUE(is_served || IsClosed(peer));
  }
  EXPECT_GT(served, 0);
  EXPECT_LT(served, 64);
  // Still without a descriptor, who is connected is served.
  EXPECT_THAT(Health(), HasSubstr("UNAVAILABLE"));
  EXPECT_EQ(attnd::testing::Health(channel), "SERVING");
  peers.clear();
  EXPECT_TRUE(Eventually([&] { return Health() == "SERVING"; }));
  EXPECT_GE(Refused("descriptors"), 64 - served);
}

// However its peer went, and whatever it left behind.
TEST_F(ConnectionsTest, NoneIsForgotten) {
  Start({});
  const std::string call = Greeting();
  for (int i = 0; i < 20; ++i) {
    const Descriptor closed = Connected(1, i % 2 == 0 ? call : "");
    const Descriptor reset = Connected(1, i % 2 == 0 ? call : "x");
    const linger at_once = {1, 0};
    setsockopt(reset.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }
  {
    // With a call that runs.
    const auto channel = Connect(process_->tcp());
    PendingForward running(channel, EndlessForward());
    EXPECT_TRUE(Eventually(
        [&] { return process_->Metric("attnd_running_requests") == 1; }));
    EXPECT_GE(Open(), 1);
  }
  // Half closed: gRPC ends it, as nobody could send a call any more.
  const Descriptor half = Connected(1, call);
  EXPECT_TRUE(IsServed(half));
  shutdown(half.get(), SHUT_WR);
  EXPECT_TRUE(IsClosed(half));
  EXPECT_TRUE(Eventually([&] { return Open() == 0; }));
  EXPECT_EQ(process_->Metric("attnd_accepted_connections_total"), 42);
}

TEST_F(ConnectionsTest, ThoseWithoutCallsAreClosed) {
  Start({"--idle_timeout=200ms"});
  client::ClientOptions once;
  once.max_attempts = 1;
  std::vector<std::unique_ptr<client::Client>> clients;
  for (const std::string& target : {process_->tcp(), process_->unix_socket()}) {
    auto client = client::Client::Create(target, once);
    ASSERT_TRUE(client.ok()) << client.status();
    clients.push_back(*std::move(client));
  }
  // As generated stubs have it.
  const auto channel =
      grpc::CreateChannel(process_->tcp(), grpc::InsecureChannelCredentials());
  const auto with_a_call = Connect(process_->tcp());
  PendingForward running(with_a_call, EndlessForward());
  for (int i = 0; i < 3; ++i) {
    // They connect again by themselves, and nobody sees an error.
    EXPECT_EQ(attnd::testing::Health(channel), "SERVING");
    for (const auto& client : clients) {
      const auto info = client->GetServerInfo({kHangLimit});
      EXPECT_TRUE(info.ok()) << info.status();
    }
    EXPECT_TRUE(Eventually([&] { return Open() == 1; }));
  }
  EXPECT_FALSE(running.WaitFor(absl::ZeroDuration()));
  // Nor is one kept that speaks HTTP/2 and never calls.
  EXPECT_TRUE(IsClosed(Connected(1, Greeting())));
}

TEST_F(ConnectionsTest, ThoseThatNeverBeginAreClosed) {
  Start({"--header_time=300ms"});
  const Descriptor speaking = Connected(1, Greeting());
  for (const absl::string_view sent : {"", "PRI *", kPreface}) {
    EXPECT_TRUE(IsClosed(Connected(1, sent))) << sent;
  }
  EXPECT_TRUE(Eventually([&] { return Open() == 1; }));
  EXPECT_EQ(Health(), "SERVING");
}

// A client that measures the link pings for what it receives, ten times a
// second, and the server may have sent all of it long before.
TEST_F(ConnectionsTest, ThoseThatPingAreKept) {
  Start({"--admin_address=127.0.0.1:0"});
  ASSERT_TRUE(Eventually([&] { return process_->admin_port() > 0; }));
  for (const std::string& address :
       {process_->tcp(), absl::StrCat("127.0.0.1:", process_->admin_port())}) {
    SCOPED_TRACE(address);
    const Descriptor fd(ConnectedSocket(address));
    StartHttp2(fd.get());
    SendBytes(
        fd.get(),
        absl::StrCat(
            Frame(kHeaders, kEndHeaders, 1,
                  PackedHeaders(CallHeaders("/grpc.health.v1.Health/Watch"))),
            Frame(kData, 0, 1, std::string(5, '\0'))));
    for (int i = 0; i < 50; ++i) {
      SendBytes(fd.get(), Frame(kPing, 0, 0, "12345678"));
      auto frame = ReceiveFrame(fd.get());
      while (frame.has_value() && frame->type != kPing) {
        ASSERT_NE(frame->type, kGoAway) << i << ": " << frame->payload;
        frame = ReceiveFrame(fd.get());
      }
      ASSERT_TRUE(frame.has_value()) << i;
      EXPECT_EQ(frame->flags, kAck);
    }
  }
}

}  // namespace
}  // namespace attnd::testing
