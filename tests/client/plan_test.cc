// A server with a team, as each of the C++ clients sees it: a plan on its way
// there, and what a team says on its way back. The devices compute nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attnd/client.h"
#include "nlohmann/json.hpp"
#include "proto/wire/status.h"
#include "server/server.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/team_backend.h"

namespace attnd::client {
namespace {

using ::attnd::testing::kHangLimit;
using ::attnd::testing::Ran;
using ::attnd::testing::RunProgram;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// All that are for a team.
constexpr Plan kTeamPlans[] = {Plan::kHeads,   Plan::kGather, Plan::kRing,
                               Plan::kStriped, Plan::kZigzag, Plan::kKv};

class PlanTest : public ::testing::Test {
 protected:
  void Start(bool with_team = true) {
    std::vector<std::unique_ptr<Backend>> devices;
    devices.push_back(std::make_unique<server::IdentityBackend>());
    if (with_team) devices.push_back(std::make_unique<server::TeamBackend>());
    auto server = server::Server::Start({}, std::move(devices));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    target_ = absl::StrCat("127.0.0.1:", server_->port());
    auto client = Client::Create(target_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  absl::StatusOr<Report> Forward(Plan plan,
                                 TransportKind by = TransportKind::kUnary) {
    const std::vector<int64_t> shape = {1, 4, 2, 8};
    const std::vector<float> in(64, 1.0f);
    std::vector<float> out(64);
    ForwardCall call;
    call.q = call.k = call.v = {DType::kF32, shape, in.data()};
    call.o = {DType::kF32, shape, out.data()};
    call.plan = plan;
    return client_->Forward(call, {.timeout = kHangLimit, .transport = by});
  }

  // attnctl on the real data that every test of it has.
  Ran Attnctl(const std::string& plan, const std::string& more) {
    const std::string data = ATTND_TEST_DATA "/minilm/layer0/";
    return RunProgram({ATTND_ATTNCTL, "forward", "--server=" + target_,
                       "--q=" + data + "q.npy", "--k=" + data + "k.npy",
                       "--v=" + data + "v.npy", "--plan=" + plan, more});
  }

  std::string target_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(PlanTest, ATeamsReportComesWhicheverWayTheCallWent) {
  Start();
  for (const TransportKind by :
       {TransportKind::kUnary, TransportKind::kStream}) {
    for (const Plan plan : kTeamPlans) {
      const auto report = Forward(plan, by);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->transport, by);
      EXPECT_THAT(report->device, HasSubstr("team:0"));
      ASSERT_TRUE(report->plan.has_value());
      EXPECT_EQ(report->plan->plan, plan);
      EXPECT_EQ(report->plan->why, "it was asked for");
      ASSERT_EQ(report->plan->devices.size(), 2);
      EXPECT_EQ(report->plan->devices[1].device, "fake:1");
      EXPECT_EQ(report->plan->devices[1].busy, absl::Microseconds(20));
      EXPECT_EQ(report->plan->predicted, absl::Microseconds(25));
    }
    const auto one = Forward(Plan::kOneDevice, by);
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_THAT(one->device, HasSubstr("fake:0"));
    EXPECT_FALSE(one->plan.has_value());
  }
}

TEST_F(PlanTest, InfoSaysThatThereIsATeam) {
  Start();
  const auto info = client_->GetServerInfo({kHangLimit});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_THAT(info->features, Contains("plans"));
  ASSERT_EQ(info->devices.size(), 2);
  EXPECT_EQ(info->devices[1].kind, "team");
}

TEST_F(PlanTest, WithoutATeamAPlanForOneIsRefused) {
  Start(/*with_team=*/false);
  for (const TransportKind by :
       {TransportKind::kUnary, TransportKind::kStream}) {
    for (const Plan plan : kTeamPlans) {
      const absl::Status status = Forward(plan, by).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      ASSERT_EQ(wire::FieldViolations(status).size(), 1);
      EXPECT_EQ(wire::FieldViolations(status)[0].field, "options.plan");
    }
    for (const Plan plan : {Plan::kAuto, Plan::kOneDevice}) {
      const auto report = Forward(plan, by);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_FALSE(report->plan.has_value());
    }
  }
  const auto info = client_->GetServerInfo({kHangLimit});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_THAT(info->features, Not(Contains("plans")));
}

TEST_F(PlanTest, AttnctlPrintsTheReport) {
  Start();
  const Ran text = Attnctl("gather", "--causal");
  ASSERT_EQ(text.exit_status, 0) << text.output;
  EXPECT_THAT(text.output,
              HasSubstr("plan       gather on fake:0 (busy 0.030 ms), fake:1 "
                        "(busy 0.020 ms), predicted 0.025 ms\n"));
  EXPECT_THAT(text.output, HasSubstr("it was asked for\n"));

  const Ran ran = Attnctl("heads", "--json");
  ASSERT_EQ(ran.exit_status, 0) << ran.output;
  const auto plan = nlohmann::json::parse(ran.output)["plan"];
  EXPECT_EQ(plan["name"], "heads");
  EXPECT_EQ(plan["why"], "it was asked for");
  EXPECT_EQ(plan["devices"][0]["device"], "fake:0");
  EXPECT_DOUBLE_EQ(plan["devices"][0]["busy_milliseconds"], 0.03);
  EXPECT_DOUBLE_EQ(plan["predicted_milliseconds"], 0.025);

  for (const std::string name : {"ring", "striped", "zigzag", "kv"}) {
    const Ran round = Attnctl(name, "--json");
    ASSERT_EQ(round.exit_status, 0) << round.output;
    EXPECT_EQ(nlohmann::json::parse(round.output)["plan"]["name"], name);
  }

  const Ran one = Attnctl("one_device", "--json");
  ASSERT_EQ(one.exit_status, 0) << one.output;
  EXPECT_TRUE(nlohmann::json::parse(one.output)["plan"].is_null());
  EXPECT_THAT(Attnctl("one_device", "--causal").output, Not(HasSubstr("plan")));
}

TEST_F(PlanTest, AttnctlSaysThatThereIsNoTeam) {
  Start(/*with_team=*/false);
  const Ran ran = Attnctl("heads", "--causal");
  EXPECT_EQ(ran.exit_status, 3) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("options.plan: this server has no team"));
}

TEST_F(PlanTest, AttnloadCountsPlansByShape) {
  Start();
  const testing::TempFolder folder;
  const std::string path = folder.File("results.json");
  const Ran ran = RunProgram(
      {ATTND_ATTNLOAD, target_, "--requests=28", "--warmup=0", "--check=0",
       "--shape=s16:h2:d8:heads", "--shape=backward:s16:h2:d8:gather",
       "--shape=s8:h2:d8:one_device", "--shape=s16:h2:d8:ring",
       "--shape=s16:h2:d8:striped", "--shape=backward:s16:h2:d8:zigzag",
       "--shape=s1/16:h2:d8:kv", "--json=" + path});
  ASSERT_EQ(ran.exit_status, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("by a team: "));
  std::ifstream file(path);
  const auto level = nlohmann::json::parse(file)["levels"][0];
  EXPECT_EQ(level["ok"], 28);
  const auto& shapes = level["shapes"];
  EXPECT_TRUE(shapes[2]["plans"].empty());
  int planned = 0;
  for (const auto& [shape, name] : {std::pair{0, "heads"},
                                    {1, "gather"},
                                    {3, "ring"},
                                    {4, "striped"},
                                    {5, "zigzag"},
                                    {6, "kv"}}) {
    const int named = shapes[shape]["plans"].value(name, 0);
    EXPECT_EQ(named, shapes[shape]["latency"]["count"]) << name;
    planned += named;
  }
  EXPECT_EQ(level["planned"], planned);
  EXPECT_DOUBLE_EQ(level["planned_mean_s"]["predicted"], 25e-6);
}

}  // namespace
}  // namespace attnd::client
