#include "server/front/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/team_backend.h"

namespace attnd::server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DescribeTest : public ::testing::Test {
 protected:
  DescribeTest() { backends_.push_back(std::make_unique<IdentityBackend>()); }
  attn::v1::GetServerInfoResponse Info() {
    return MakeServerInfo("this one", options_, backends_);
  }
  std::vector<std::string> Lines() {
    return DescribeServer(options_, backends_, 7411, -1, 7412);
  }

  ServerOptions options_;
  std::vector<std::unique_ptr<Backend>> backends_;
};

TEST_F(DescribeTest, TheServerIsTheOneItIsSaidToBe) {
  EXPECT_EQ(Info().server_instance_id(), "this one");
  EXPECT_EQ(NewInstanceId().size(), 32);
  EXPECT_NE(NewInstanceId(), NewInstanceId());
}

TEST_F(DescribeTest, SaysWhereOperatorsMayLook) {
  EXPECT_THAT(Lines(), Not(Contains(HasSubstr("admin"))));
  options_.admin_address = "[::1]:0";
  EXPECT_THAT(Lines(), Contains("admin on [::1]:7412, HTTP and gRPC"));
}

TEST_F(DescribeTest, WithoutRegionsThereAreNone) {
  EXPECT_THAT(Info().features(), ElementsAre("exchange"));
  EXPECT_EQ(Info().limits().region_bytes(), 0);
  EXPECT_THAT(Lines(), Not(Contains(HasSubstr("region"))));
}

TEST_F(DescribeTest, SaysHowLargeRegionsMayBe) {
  options_.regions.socket = "/run/attnd/region";
  options_.regions.memory_bytes = int64_t{4} << 30;
  options_.regions.import_memory_bytes = 0;
  EXPECT_THAT(Info().features(), ElementsAre("exchange", "regions"));
  EXPECT_EQ(Info().limits().region_bytes(), int64_t{1} << 30);
  EXPECT_THAT(
      Lines(),
      Contains("regions on unix:/run/attnd/region: 4096 MiB of the host, 16 of "
               "64 MiB, 4 of 256 MiB, 2 of 1024 MiB"));
}

TEST_F(DescribeTest, SaysWhetherItTakesGpusMemory) {
  options_.regions.socket = "/run/attnd/region";
  EXPECT_THAT(Info().features(), ElementsAre("exchange", "regions.cuda"));
  EXPECT_EQ(Info().limits().region_bytes(), 0);
  EXPECT_THAT(Lines(), Contains(HasSubstr("of GPUs, what clients lend")));
}

TEST_F(DescribeTest, ATeamIsADeviceThatHasPlans) {
  backends_.push_back(std::make_unique<TeamBackend>());
  EXPECT_THAT(Info().features(), ElementsAre("exchange", "plans"));
  ASSERT_EQ(Info().devices_size(), 2);
  EXPECT_EQ(Info().devices(1).kind(), "team");
  EXPECT_THAT(Lines(), Contains(HasSubstr("device team:0 ")));
}

}  // namespace
}  // namespace attnd::server
