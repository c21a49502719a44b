// grpc.health.v1.Health as gRPC clients use it: Check and Watch, and how many.

#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.pb.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/integration/streams.h"

namespace attnd::testing {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using Watch = Stream<HealthCheckRequest, HealthCheckResponse>;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr char kService[] = "attn.v1.AttentionService";

std::unique_ptr<ServerProcess> StartAttnd(std::vector<std::string> flags) {
  flags.emplace_back("--memory_limit=128MiB");
  auto process = ServerProcess::Start(ATTND_BINARY, flags);
  EXPECT_TRUE(process.ok()) << process.status();
  return *std::move(process);
}

HealthCheckRequest Of(const std::string& service) {
  HealthCheckRequest request;
  request.set_service(service);
  return request;
}

// What a watch says next; -1 if it has ended.
int Next(Watch& watch) {
  const auto response = watch.Next();
  return response.has_value() ? static_cast<int>(response->status()) : -1;
}

TEST(HealthService, KnowsItsServicesAndNoOthers) {
  const auto process = StartAttnd({});
  const auto channel = Connect(process->tcp());
  for (const char* service : {"", kService}) {
    HealthCheckResponse response;
    ASSERT_TRUE(CallUnary(channel, kCheck, Of(service), response).ok());
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
    Watch watch(channel, kWatch);
    watch.Send(Of(service));
    EXPECT_EQ(Next(watch), HealthCheckResponse::SERVING);
  }
  HealthCheckResponse response;
  EXPECT_TRUE(absl::IsNotFound(
      CallUnary(channel, kCheck, Of("no.such.Service"), response)));
  Watch watch(channel, kWatch);
  watch.Send(Of("no.such.Service"));
  EXPECT_EQ(Next(watch), HealthCheckResponse::SERVICE_UNKNOWN);
}

TEST(HealthService, AWatchHearsOfTheDrain) {
  const auto process = StartAttnd({"--drain_time=1h", "--metrics_port=0"});
  const auto channel = Connect(process->tcp());
  Watch watch(channel, kWatch);
  watch.Send(Of(""));
  EXPECT_EQ(Next(watch), HealthCheckResponse::SERVING);
  PendingForward holding(channel, EndlessForward(), absl::InfiniteDuration());
  ASSERT_TRUE(Eventually(
      [&] { return process->Metric("attnd_running_requests") == 1; }));
  process->Signal(SIGTERM);
  EXPECT_EQ(Next(watch), HealthCheckResponse::NOT_SERVING);
  holding.Cancel();
  EXPECT_EQ(process->Wait(), 0) << process->log();
  const absl::Status ended = watch.End();
  EXPECT_TRUE(absl::IsUnavailable(ended)) << ended;
}

TEST(HealthService, AClientHasAsManyWatchesAsConnections) {
  const auto process = StartAttnd({"--max_connections_per_client=3"});
  const auto channel = Connect(process->tcp());
  std::vector<std::unique_ptr<Watch>> watches;
  for (int i = 0; i < 3; ++i) {
    watches.push_back(std::make_unique<Watch>(channel, kWatch));
    watches.back()->Send(Of(kService));
    EXPECT_EQ(Next(*watches.back()), HealthCheckResponse::SERVING);
  }
  const absl::Status refused = Watch(channel, kWatch).End();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(Health(channel), "SERVING");
  watches.pop_back();
  EXPECT_TRUE(Eventually([&] {
    Watch again(channel, kWatch);
    again.Send(Of(kService));
    return Next(again) == HealthCheckResponse::SERVING;
  }));
}

TEST(HealthService, ARequestIsSmallAndWellFormedAndThere) {
  const auto process = StartAttnd({"--stall_time=200ms"});
  const auto channel = Connect(process->tcp());
  for (const char* path : {kCheck, kWatch}) {
    Watch large(channel, path);
    large.Send(Of(std::string((64 << 10) + 1, 'x')));
    const absl::Status refused = large.End();
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << path << refused;
    Watch silent(channel, path);
    const absl::Status late = silent.End();
    EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << path << late;
  }
  EXPECT_EQ(Health(channel), "SERVING");
}

}  // namespace
}  // namespace attnd::testing
