// How attnd ends connections that are encrypted: by their age, and when it
// drains.

#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/client/live_server.h"
#include "tests/hang_limit.h"
#include "tests/integration/http2_bytes.h"
#include "tests/integration/rpc.h"
#include "tests/integration/tls_serving.h"

namespace attnd::testing {
namespace {

using TlsEndTest = TlsServingTest;

// Reads frames until the connection ends, and answers PING, as whoever ends a
// connection asks whether all has been read. Whether it was told by GOAWAY.
bool IsToldToGo(TlsPeer& peer) {
  bool is_told = false;
  std::string left;
  for (std::string some = peer.Receive(); !some.empty();
       some = peer.Receive()) {
    left += some;
    while (left.size() >= 9) {
      const auto at = [&left](size_t i) {
        return static_cast<uint8_t>(left[i]);
      };
      const size_t size = 9 + (at(0) << 16 | at(1) << 8 | at(2));
      if (left.size() < size) break;
      is_told |= at(3) == kGoAway;
      if (at(3) == kPing && at(4) == 0) {
        peer.Send(Frame(kPing, kAck, 0, left.substr(9, size - 9)));
      }
      left.erase(0, size);
    }
  }
  return is_told;
}

TEST_F(TlsEndTest, AnOldConnectionIsReplacedAndNoCallFails) {
  StartMutual({"--connection_age=200ms"});
  client::ClientOptions options = Trusting(ForClient("alice"));
  // As clients are unless told otherwise: a call may meet the connection's end.
  options.max_attempts = client::ClientOptions().max_attempts;
  const auto caller = MakeClient(options);
  client::Example large(int64_t{1} << 16, 16);
  EXPECT_TRUE(Eventually([&] {
    client::CallOptions how;
    how.timeout = kHangLimit;
    const auto report = caller->Forward(large.call, how);
    EXPECT_TRUE(report.ok()) << report.status();
    return Metric("attnd_accepted_connections_total") >= 4;
  }));
  large.ExpectAnswered();
  EXPECT_EQ(Metric("attnd_tls_handshakes_failed_total"), 0);
}

TEST_F(TlsEndTest, AnOldConnectionIsToldAndEndsInOrder) {
  Start({"--connection_age=200ms"});
  TlsPeer peer(process_->tcp(), RawTrusting());
  ASSERT_TRUE(peer.Handshake());
  peer.Send(absl::StrCat(kPreface, Frame(kSettings, 0, 0)));
  EXPECT_TRUE(IsToldToGo(peer));
  EXPECT_TRUE(peer.tls().has_ended_cleanly());
}

TEST_F(TlsEndTest, ADrainGivesWhatWasAdmittedItsResult) {
  StartMutual({"--lanes=1", "--max_batch_requests=1", "--drain_time=1h"});
  TlsPeer idle(process_->tcp(), RawTrusting(ForClient("idle")));
  ASSERT_TRUE(idle.Handshake() && idle.IsServed());
  PendingForward holding(Connect(process_->unix_socket()), EndlessForward(),
                         absl::InfiniteDuration());
  ASSERT_TRUE(
      Eventually([&] { return Metric("attnd_running_requests") == 1; }));
  constexpr int kCalls = 4;
  std::vector<std::thread> calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.emplace_back([this, i] {
      const auto caller = MakeClient(Trusting(ForClient("alice")));
      client::Example example(int64_t{1} << 16, 16);
      client::CallOptions how;
      how.timeout = kHangLimit;
      how.transport = i % 2 == 0 ? client::TransportKind::kUnary
                                 : client::TransportKind::kStream;
      const auto report = caller->Forward(example.call, how);
      EXPECT_TRUE(report.ok()) << report.status();
      if (report.ok()) example.ExpectAnswered();
    });
  }
  EXPECT_TRUE(Eventually([&] {
    return Metric("attnd_queue_requests") == kCalls;
  })) << process_->log();
  process_->Signal(SIGTERM);
  EXPECT_TRUE(process_->AwaitLog("draining for up to 1h"));
  holding.Cancel();
  for (std::thread& call : calls) call.join();
  EXPECT_EQ(process_->Wait(), 0) << process_->log();
  idle.ReceiveToTheEnd();
  EXPECT_TRUE(idle.tls().has_ended_cleanly());
}

}  // namespace
}  // namespace attnd::testing
