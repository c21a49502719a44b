#include "server/program/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <string>

#include "base/descriptor.h"
#include "server/telemetry/metrics_server.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kOpen = 8;

int Within(int64_t limit, const ServerOptions& options) {
  const absl::StatusOr<int> connections =
      ConnectionsWithin(limit, kOpen, options);
  EXPECT_TRUE(connections.ok()) << connections.status();
  return connections.value_or(-1);
}

TEST(Descriptors, LeaveRoomForWhatIsNoConnection) {
  ServerOptions options;
  options.max_connections = 400;
  EXPECT_EQ(Within(int64_t{1} << 40, options), 400);
  // Not all of them for connections, but most.
  const int most = Within(400, options);
  EXPECT_LT(most, 400 - kOpen);
  EXPECT_GT(most, 400 / 2);
  EXPECT_EQ(Within(399, options), most - 1);
  EXPECT_EQ(Within(400 + 400 - most, options), 400);
  options.metrics_port = 0;
  EXPECT_EQ(Within(400 + kMaxHttpConnections, options), most);
  options.admin_address = "127.0.0.1:0";
  const int http = 2 * kMaxHttpConnections + kMaxAdminConnections;
  EXPECT_EQ(Within(400 + http, options), most);
  options.regions.socket = "/run/attnd/region";
  options.regions.memory_bytes = int64_t{1} << 30;
  EXPECT_EQ(Within(400 + http + options.regions.Descriptors(), options), most);
}

TEST(Descriptors, MustAllowAConnection) {
  ServerOptions options;
  int64_t fewest = 0;
  while (!ConnectionsWithin(fewest, kOpen, options).ok()) ++fewest;
  EXPECT_EQ(Within(fewest, options), 1);
  const absl::Status status =
      ConnectionsWithin(fewest - 1, kOpen, options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("of " + std::to_string(fewest) + " descriptors"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("may have only " + std::to_string(fewest - 1) + ";"));
}

TEST(Descriptors, AreCounted) {
  const int before = CountDescriptors();
  EXPECT_GT(before, 2);
  const Descriptor one(socket(AF_UNIX, SOCK_STREAM, 0));
  EXPECT_EQ(CountDescriptors(), before + 1);
  EXPECT_EQ(CountDescriptors(), before + 1);
}

TEST(Descriptors, TheSoftLimitIsRaisedToTheHardOne) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const int64_t raised = RaiseDescriptorLimit();
  rlimit after = {};
  getrlimit(RLIMIT_NOFILE, &after);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  EXPECT_EQ(static_cast<rlim_t>(raised), before.rlim_max);
}

}  // namespace
}  // namespace attnd::server
