// attnload's load on a real server: what it sees of a stall, and that both
// count the same.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "attnd/client.h"
#include "client/attnload/load.h"
#include "server/server.h"
#include "tests/hang_limit.h"
#include "tests/integration/http_get.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"

namespace attnd {
namespace {

using attnload::LoadOptions;
using attnload::ParseShape;
using attnload::Results;
using attnload::Workload;

constexpr absl::Duration kStall = absl::Milliseconds(300);

// A device that stands still for a while, once, at a given run.
class StallingBackend : public server::IdentityBackend {
 public:
  explicit StallingBackend(int64_t stall_at_run) : stall_at_(stall_at_run) {}

  absl::Status On(Stage stage, Group) override {
    if (stage == Stage::kRun && runs_++ == stall_at_) absl::SleepFor(kStall);
    return absl::OkStatus();
  }

 private:
  const int64_t stall_at_;
  std::atomic<int64_t> runs_{0};
};

std::unique_ptr<server::Server> StartServer(
    std::unique_ptr<Backend> backend, const server::ServerOptions& options) {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::move(backend));
  auto server = server::Server::Start(options, std::move(backends));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

Results Load(const server::Server& server, const LoadOptions& options,
             std::vector<attnload::Shape> shapes) {
  client::ClientOptions client_options;
  client_options.max_attempts = 1;
  auto client = client::Client::Create(
      absl::StrCat("127.0.0.1:", server.port()), client_options);
  EXPECT_TRUE(client.ok()) << client.status();
  Workload workload(std::move(shapes), 1);
  return RunLoad(**client, workload, options,
                 [](const Results&, int64_t, absl::Duration) {});
}

TEST(Attnload, OpenLoopShowsAServersStall) {
  server::ServerOptions options;
  // One lane, one request at a time: all stand behind the one that stalls.
  options.scheduler.lanes_per_device = 1;
  options.scheduler.max_batch_requests = 1;
  const auto server =
      StartServer(std::make_unique<StallingBackend>(50), options);
  LoadOptions load;
  load.open_loop = true;
  load.level = 10'000;
  load.requests = 600;  // all due within 60 ms or so, before the stall ends
  load.warm_up = absl::ZeroDuration();
  load.check_share = 0;  // the answers are not attention
  const Results results = Load(*server, load, {*ParseShape("s4:h1:d8")});
  EXPECT_EQ(results.ok, 600);
  // 50 were answered before it. The others were due before it began or soon
  // after, and waited until it ended.
  EXPECT_GE(results.latency.Quantile(0.25), kStall / 2);
}

// attnd_requests_total of Forward and Backward, by code, where not 0.
std::map<std::string, int64_t> RequestsByCode(const std::string& metrics) {
  std::map<std::string, int64_t> by_code;
  for (absl::string_view line : absl::StrSplit(metrics, '\n')) {
    if (line.find("attnd_requests_total{") != 0 ||
        line.find("GetServerInfo") != absl::string_view::npos) {
      continue;
    }
    const size_t code = line.find("code=\"") + 6;
    const size_t end = line.find('"', code);
    double count = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &count));
    if (count > 0) {
      by_code[std::string(line.substr(code, end - code))] += int64_t(count);
    }
  }
  return by_code;
}

TEST(Attnload, CountsWhatTheServersMetricsCount) {
  server::ServerOptions options;
  options.metrics_port = 0;
  options.scheduler.lanes_per_device = 1;
  options.scheduler.max_queue_requests = 4;
  options.scheduler.max_batch_requests = 1;
  auto device = std::make_unique<server::ManualBackend>();
  server::ManualBackend& kept = *device;
  const auto server = StartServer(std::move(device), options);
  const auto counts = [&server] {
    return RequestsByCode(testing::HttpGet(server->metrics_port(), "/metrics"));
  };
  // Nothing runs to its end before the queue was full.
  std::thread opener([&] {
    EXPECT_TRUE(testing::Eventually(
        [&] { return counts()["RESOURCE_EXHAUSTED"] > 0; }));
    kept.FinishAll();
  });
  LoadOptions load;
  load.level = 32;
  load.requests = 1000;
  load.warm_up = absl::Milliseconds(50);
  load.check_share = 0;
  const Results results =
      Load(*server, load,
           {*ParseShape("s64:h4:d64"), *ParseShape("backward:bf16:s32:h2:d64"),
            *ParseShape("d300@0.2"), *ParseShape("f16:s1/512:h8/2:d128")});
  opener.join();

  std::map<std::string, int64_t> ours;
  for (const auto& [code, n] : results.sent_by_code) {
    ours[absl::StatusCodeToString(code)] = n;
  }
  EXPECT_GT(ours["OK"], 0);
  EXPECT_GT(ours["INVALID_ARGUMENT"], 0) << "head_dim 300";
  EXPECT_GT(ours["RESOURCE_EXHAUSTED"], 0) << "32 at once, 4 may wait";
  // The server counts a call once gRPC is done with it, which is after its
  // client has the answer.
  (void)testing::Eventually([&] { return counts() == ours; });
  EXPECT_EQ(counts(), ours);
}

}  // namespace
}  // namespace attnd
