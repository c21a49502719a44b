// What a team computes is what one device does: the contract's bound, forward
// bit by bit, the same each time, for every plan and any number of devices.

#include "kernels/team/team.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::BackwardBits;
using testing::Cpus;
using testing::Device;
using testing::ForwardBits;
using testing::OneCpu;
using testing::RandomProblem;
using testing::ServedOptions;
using testing::TeamOf;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint32_t kProblems = 12;
#else
constexpr uint32_t kProblems = 130;
#endif

struct TeamParam {
  int devices;
  PlanKind plan;
};

class TeamTest : public ::testing::TestWithParam<TeamParam> {
 protected:
  GroupOptions Options() const {
    return {.deterministic = true, .plan = GetParam().plan};
  }
  // Other problems for each parameter.
  static uint32_t Seed(uint32_t i) {
    return i + 1000 * static_cast<uint32_t>(GetParam().devices) +
           (GetParam().plan == PlanKind::kHeads ? 0 : 500);
  }

  TeamOf cpu_{Cpus(GetParam().devices)};
  Device& team_ = *cpu_.team;
};

TEST_P(TeamTest, ForwardHasOneDevicesBits) {
  Device one(OneCpu());
  testing::ProblemOptions options = ServedOptions();
  options.backward = false;
  for (uint32_t i = 0; i < kProblems; ++i) {
    const RandomProblem problem(Seed(i), options);
    ASSERT_EQ(ForwardBits(team_, problem, Options()),
              ForwardBits(one, problem, {}))
        << problem.Describe();
  }
}

TEST_P(TeamTest, ForwardKeepsTheContract) {
  testing::ProblemOptions options = ServedOptions();
  options.backward = false;
  for (uint32_t i = 0; i < kProblems / 4; ++i) {
    const RandomProblem problem(Seed(i + 200), options);
    ASSERT_TRUE(CheckForward(problem, [&](const ForwardArgs& args) {
      return team_.Forward(args, Options());
    })) << problem.Describe();
  }
}

TEST_P(TeamTest, BackwardKeepsTheContract) {
  for (uint32_t i = 0; i < kProblems / 2; ++i) {
    const RandomProblem problem(Seed(i), ServedOptions());
    // Sums of several terms are rounded more often.
    ASSERT_TRUE(CheckBackward(
        problem,
        [&](const BackwardArgs& args) {
          return team_.Backward(args, Options());
        },
        testing::Slack::kApproximations))
        << problem.Describe();
  }
}

TEST_P(TeamTest, BackwardGivesTheSameBitsAgain) {
  for (uint32_t i = 0; i < kProblems / 4; ++i) {
    const RandomProblem problem(Seed(i), ServedOptions());
    ASSERT_EQ(BackwardBits(team_, problem, Options()),
              BackwardBits(team_, problem, Options()))
        << problem.Describe();
  }
}

TEST_P(TeamTest, SaysWhatItRanAs) {
  testing::ProblemOptions something = ServedOptions();
  something.empty_sizes = something.lens = something.masks = false;
  const RandomProblem problem(1, something);
  ForwardBits(team_, problem, Options());
  EXPECT_EQ(team_.report.kind,
            GetParam().devices == 1 ? PlanKind::kOneDevice : GetParam().plan);
  ASSERT_EQ(team_.report.devices.size(), GetParam().devices);
  EXPECT_EQ(team_.report.devices[0].name, "cpu:0");
  EXPECT_FALSE(team_.report.why.empty());
  EXPECT_GT(team_.report.predicted, absl::ZeroDuration());
}

INSTANTIATE_TEST_SUITE_P(All, TeamTest,
                         ::testing::Values(TeamParam{1, PlanKind::kHeads},
                                           TeamParam{2, PlanKind::kHeads},
                                           TeamParam{3, PlanKind::kHeads},
                                           TeamParam{4, PlanKind::kHeads},
                                           TeamParam{7, PlanKind::kHeads},
                                           TeamParam{2, PlanKind::kGather},
                                           TeamParam{3, PlanKind::kGather},
                                           TeamParam{4, PlanKind::kGather},
                                           TeamParam{7, PlanKind::kGather}),
                         [](const ::testing::TestParamInfo<TeamParam>& info) {
                           return absl::StrCat(PlanName(info.param.plan),
                                               info.param.devices);
                         });

}  // namespace
}  // namespace attnd
