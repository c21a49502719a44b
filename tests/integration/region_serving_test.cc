// attnd leases regions: what it says of them, and whose they are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attn/v1/attention.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/server/region_testing.h"

namespace attnd::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class RegionServing : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<ServerProcess>> Try(
      std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--threads=1", "--memory_limit=128MiB",
                               "--metrics_port=0", "--region_slab=2MiB"});
    return ServerProcess::Start(ATTND_BINARY, flags);
  }
  std::unique_ptr<ServerProcess> Start() {
    auto process = Try({"--region_socket=" + path_, "--region_memory=16MiB"});
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }

  const TempFolder folder_;
  const std::string path_ = folder_.File("region");
};

TEST_F(RegionServing, SaysWhatItSaysOverGrpc) {
  const auto process = Start();
  attn::v1::GetServerInfoResponse info;
  grpc::ClientContext context;
  ASSERT_TRUE(attn::v1::AttentionService::NewStub(Connect(process->tcp()))
                  ->GetServerInfo(&context, {}, &info)
                  .ok());
  EXPECT_THAT(info.features(), Contains("regions"));
  // A processor has no memory that clients could lend.
  EXPECT_THAT(info.features(), Not(Contains("regions.cuda")));
  EXPECT_EQ(info.limits().region_bytes(), 8 << 20);
  server::RegionClient client(path_);
  const server::RegionAnswer answer =
      client.Call(server::LeaseRequest(info.limits().region_bytes()));
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.server_instance_id, info.server_instance_id());
  EXPECT_EQ(process->Metric("attnd_region_leases"), 1);
  EXPECT_EQ(process->Metric("attnd_region_leased_bytes"), 8 << 20);
  client.Close();
  EXPECT_TRUE(Eventually([&] {
    return process->Metric("attnd_region_leases") == 0 &&
           process->Metric("attnd_region_free_bytes") == 16 << 20;
  })) << process->Metrics();
  EXPECT_EQ(process->Metric("attnd_region_slabs_replaced_total"), 1);
}

TEST_F(RegionServing, LeasesEndWithTheServer) {
  const auto process = Start();
  server::RegionClient client(path_);
  const server::RegionAnswer answer = client.Call(server::LeaseRequest(1));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  const server::TestMapping mapping(answer.memory.get(), answer.bytes);
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(), 0) << process->log();
  EXPECT_TRUE(client.HasEnded());
  mapping.data()[0] = std::byte{1};
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".lock"));
}

TEST_F(RegionServing, ASocketIsNotTakenFromAServerThatLives) {
  const auto first = Start();
  const auto second =
      Try({"--region_socket=" + path_, "--region_memory=16MiB"});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("--region_socket: cannot listen on " + path_));
}

TEST_F(RegionServing, MemoryNeedsASocket) {
  const auto process = Try({"--region_memory=16MiB"});
  ASSERT_FALSE(process.ok());
  EXPECT_THAT(std::string(process.status().message()),
              HasSubstr("--region_memory: needs --region_socket"));
}

}  // namespace
}  // namespace attnd::testing
