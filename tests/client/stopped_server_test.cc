// The client against an attnd that is stopped in the middle of an upload: calls
// end, rather than never. How soon is measured by tests/bench/service_bench.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "attnd/client.h"
#include "tests/client/live_server.h"
#include "tests/hang_limit.h"

namespace attnd::client {
namespace {

// A stopped server takes nothing more than the sockets' buffers hold: the
// write is stuck, and no deadline ends that, only who breaks the connection.
class StoppedServerTest : public EverySocketTest {
 protected:
  static constexpr absl::Duration kDeadline = absl::Milliseconds(100);
  // An Exchange would wait for the server's leave, and write nothing.
  static constexpr CallOptions Unary(absl::Duration timeout) {
    CallOptions options;
    options.timeout = timeout;
    options.transport = TransportKind::kUnary;
    return options;
  }
  static constexpr absl::Duration kKeepaliveTime = absl::Seconds(1);
  static constexpr absl::Duration kKeepaliveTimeout = absl::Milliseconds(500);

  void StartWithKeepalive(int connections) {
    ClientOptions options;
    options.connections = connections;
    options.keepalive_time = kKeepaliveTime;
    options.keepalive_timeout = kKeepaliveTimeout;
    // A busy server may be taken for a stopped one.
    options.max_attempts = 20;
    Start(options);
    // Every connection, before it is needed.
    for (int i = 1; i < connections; ++i) ExpectServes();
  }

  void ExpectEnded(const absl::Status& status) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status))
        << status;
  }

  // Whatever was still being written to the server now goes on, if it may.
  void Resume() {
    server_->Continue();
    ExpectServes();
  }
};

TEST_P(StoppedServerTest, SyncCallsEndAndLetGoOfTheirMemory) {
  StartWithKeepalive(1);
  for (int round = 0; round < 2; ++round) {
    server_->Stop();
    auto example = std::make_unique<Example>(1 << 14, 128);  // 8 MiB
    const auto report = client_->Forward(example->call, Unary(kDeadline));
    example.reset();
    ExpectEnded(report.status());
    Resume();
  }
}

TEST_P(StoppedServerTest, AsyncCallsEndAndLetGoOfTheirMemory) {
  constexpr int kCalls = 12;
  StartWithKeepalive(2);
  std::vector<std::unique_ptr<Example>> examples;
  for (int i = 0; i < kCalls; ++i) {
    examples.push_back(std::make_unique<Example>(1 << 14, 128));  // 8 MiB
  }
  absl::BlockingCounter ended(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    // Some are being uploaded, some wait behind them, some come later.
    if (i == kCalls / 2) server_->Stop();
    client_->ForwardAsync(
        examples[i]->call, Unary(kDeadline),
        [this, &ended, &example = examples[i]](absl::StatusOr<Report> report) {
          example.reset();
          if (!report.ok()) ExpectEnded(report.status());
          ended.DecrementCount();
        });
  }
  ended.Wait();
  Resume();
}

// The write is another call's, which has all the time in the world.
TEST_P(StoppedServerTest, SmallCallsEndBehindAStuckOne) {
  StartWithKeepalive(1);
  server_->Stop();
  auto stuck = std::make_unique<Example>(1 << 14, 128);
  absl::Notification ended;
  client_->ForwardAsync(stuck->call, Unary(testing::kHangLimit),
                        [&](absl::StatusOr<Report>) {
                          stuck.reset();
                          ended.Notify();
                        });
  Example small(1, 64);
  const auto report = client_->Forward(small.call, {kDeadline});
  ExpectEnded(report.status());
  Resume();
  ended.WaitForNotification();
}

TEST_P(StoppedServerTest, DestructionWaitsForCallsToEnd) {
  StartWithKeepalive(1);
  server_->Stop();
  auto example = std::make_unique<Example>(1 << 14, 128);
  bool done = false;
  client_->ForwardAsync(example->call, Unary(kDeadline),
                        [&](absl::StatusOr<Report> report) {
                          example.reset();
                          ExpectEnded(report.status());
                          done = true;
                        });
  client_.reset();
  EXPECT_TRUE(done);
}

TEST_P(StoppedServerTest, CancelledCallsEndAndLetGoOfTheirMemory) {
  StartWithKeepalive(1);
  server_->Stop();
  auto example = std::make_unique<Example>(1 << 14, 128);
  absl::Notification ended;
  absl::Status status;
  const auto cancel =
      client_->ForwardAsync(example->call, Unary(absl::InfiniteDuration()),
                            [&](absl::StatusOr<Report> report) {
                              example.reset();
                              status = report.status();
                              ended.Notify();
                            });
  cancel();
  ended.WaitForNotification();
  EXPECT_TRUE(absl::IsCancelled(status) || absl::IsUnavailable(status))
      << status;
  Resume();
}

INSTANTIATE_TEST_SUITE_P(Sockets, StoppedServerTest, ::testing::Bool(),
                         SocketName);

}  // namespace
}  // namespace attnd::client
