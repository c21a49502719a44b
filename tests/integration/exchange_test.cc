// Exchanges between the client library and attnd in a process of its own, over
// connections that break.

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "attnd/client.h"
#include "tests/client/live_server.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"
#include "tests/integration/reset_proxy.h"

namespace attnd::testing {
namespace {

using client::CallOptions;
using client::Client;
using client::ClientOptions;
using client::Example;
using client::TransportKind;

constexpr int64_t kDim = 256;
constexpr int64_t kTokens = (int64_t{24} << 20) / (kDim * 4);
constexpr int64_t kBytes = kTokens * kDim * 4;  // of Q, and of O
constexpr int kConnections = 3;

// How many random runs: ATTND_EXCHANGE_RUNS, or as many as a suite has time
// for.
int Runs() {
  const char* runs = std::getenv("ATTND_EXCHANGE_RUNS");
  return runs != nullptr ? std::atoi(runs) : kSanitized ? 5 : 25;
}

class ExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ServerProcess::Start(
        ATTND_BINARY, {"--metrics_port=0", "--memory_limit=1GiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = std::stoi(server_->tcp().substr(server_->tcp().find(':') + 1));
  }

  // A call over connections of its own, by way of `proxy`.
  absl::StatusOr<client::Report> Call(const ResetProxy& proxy,
                                      const Example& example) {
    ClientOptions options;
    options.connections = kConnections;
    options.max_attempts = 1;
    auto client = Client::Create(proxy.target(), options);
    if (!client.ok()) return client.status();
    CallOptions how;
    how.timeout = kHangLimit;
    how.transport = TransportKind::kStream;
    return (*client)->Forward(example.call, how);
  }

  void ExpectNothingHeld() {
    EXPECT_TRUE(Eventually([&] {
      return server_->Metric("attnd_account_bytes") == 0 &&
             server_->Metric("attnd_upload_bytes") == 0;
    })) << server_->Metrics();
  }

  std::unique_ptr<ServerProcess> server_;
  int port_ = 0;
  std::mt19937 random_{11};
};

TEST_F(ExchangeTest, GoesOverAsManyConnectionsAsThereAre) {
  ResetProxy proxy(port_);
  const Example example(kTokens, kDim);
  const auto report = Call(proxy, example);
  ASSERT_TRUE(report.ok()) << report.status();
  example.ExpectAnswered();
  EXPECT_EQ(report->transport, TransportKind::kStream);
  EXPECT_EQ(report->streams, 2 * kConnections);
  EXPECT_EQ(proxy.connections(), kConnections);
  ExpectNothingHeld();
}

TEST_F(ExchangeTest, JoinedConnectionsThatBreakCostNoByte) {
  int resets = 0;
  for (int run = 0; run < Runs(); ++run) {
    ResetProxy proxy(port_);
    const bool back = random_() % 3 == 0;
    proxy.ResetAfter(1, random_() % (kBytes / 2), back);
    if (random_() % 2 == 0) {
      proxy.ResetAfter(2, random_() % (kBytes / 2), random_() % 3 == 0);
    }
    const Example example(kTokens, kDim);
    const auto report = Call(proxy, example);
    ASSERT_TRUE(report.ok()) << report.status() << " in run " << run;
    example.ExpectAnswered();
    resets += proxy.resets();
  }
  // Connections that carried less than their limit were not reset; how much
  // each carries is up to the machine.
  EXPECT_GT(resets, 0);
  ExpectNothingHeld();
}

TEST_F(ExchangeTest, AFirstConnectionThatBreaksEndsItAndLeavesNothing) {
  int failed = 0;
  for (int run = 0; run < Runs(); ++run) {
    ResetProxy proxy(port_);
    proxy.ResetAfter(0, random_() % (kBytes / 3), random_() % 3 == 0);
    const Example example(kTokens, kDim);
    const auto report = Call(proxy, example);
    if (report.ok()) {
      example.ExpectAnswered();
      EXPECT_EQ(proxy.resets(), 0);
      continue;
    }
    EXPECT_EQ(report.status().code(), absl::StatusCode::kUnavailable)
        << report.status();
    ++failed;
  }
  EXPECT_GT(failed, 0);
  ExpectNothingHeld();
}

}  // namespace
}  // namespace attnd::testing
