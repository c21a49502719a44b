// attnd's metrics as Prometheus would scrape them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/integration/slow_peers.h"
#include "tests/server/bad_requests.h"

namespace attnd::testing {
namespace {

// Where `program` is on PATH, or empty.
std::string Find(const std::string& program) {
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  for (absl::string_view folder : absl::StrSplit(path ? path : "", ':')) {
    std::string file = absl::StrCat(folder, "/", program);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// Whether a missing tool is a failure, as in tests/run.sh, which installs all.
bool ToolsAreRequired() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  return std::getenv("ATTND_REQUIRE_TOOLS") != nullptr;
}

class MetricsOverHttp : public ::testing::Test {
 protected:
  void SetUp() override {
    auto process = ServerProcess::Start(
        ATTND_BINARY, {"--memory_limit=128MiB", "--metrics_port=0"});
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
    channel_ = Connect(process_->tcp());
    attn::v1::ForwardResponse response;
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(Forward(channel_, server::GoodForward(), response).ok());
    }
    for (const server::BadRequest& bad : server::BadRequests()) {
      ++refused_[static_cast<int>(bad.op)][static_cast<int>(bad.code)];
      (void)RawCall(channel_, bad.op, bad.bytes);
    }
  }

  std::unique_ptr<ServerProcess> process_;
  std::shared_ptr<grpc::Channel> channel_;
  int refused_[2][17] = {};
};

TEST_F(MetricsOverHttp, CountWhatClientsSaw) {
  const auto call = [](const char* method, const char* code) {
    return absl::StrCat("attnd_requests_total{code=\"", code, "\",method=\"",
                        method, "\"}");
  };
  const std::vector<std::pair<std::string, double>> expected = {
      {call("Forward", "OK"), 5},
      {call("Forward", "INVALID_ARGUMENT"), refused_[0][3]},
      {call("Forward", "UNIMPLEMENTED"), refused_[0][12]},
      {call("Backward", "INVALID_ARGUMENT"), refused_[1][3]},
      {"attnd_batch_requests_count", 5},
      {"attnd_device_in_service{device=\"cpu:0\"}", 1}};
  for (const std::pair<std::string, double>& count : expected) {
    const std::string& series = count.first;
    const double value = count.second;
    // A call's count may follow its answer.
    (void)Eventually([&] { return process_->Metric(series) == value; });
    EXPECT_EQ(process_->Metric(series), value) << series;
  }
}

TEST_F(MetricsOverHttp, ComeWhile200PeersAreSlow) {
  const auto peers = SlowPeers(200, process_->metrics_port());
  ASSERT_TRUE(peers.ok()) << peers.status();
  for (int i = 0; i < 3; ++i) EXPECT_NE(process_->Metrics(), "");
}

TEST_F(MetricsOverHttp, PassPromtool) {
  const std::string promtool = Find("promtool");
  if (promtool.empty() && ToolsAreRequired()) {
    FAIL() << "promtool is not on PATH";
  }
  if (promtool.empty()) GTEST_SKIP() << "SKIPPED: promtool is not on PATH";
  const Ran ran =
      RunProgram({promtool, "check", "metrics"}, process_->Metrics());
  EXPECT_EQ(ran.exit_status, 0) << ran.output;
  EXPECT_EQ(ran.output, "");
}

}  // namespace
}  // namespace attnd::testing
