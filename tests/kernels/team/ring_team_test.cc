// Forward of plans in which columns go round, and of kv, on virtual CPU
// devices: within the contract's bound of float64, whatever the shapes, and the
// same each time.

#include "tests/kernels/team/ring_team.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::ForwardBits;
using testing::kRingProblems;
using testing::ProblemOptions;
using testing::RandomProblem;

class RingTeamTest : public testing::RingTeam {
 protected:
  static ProblemOptions Served() {
    ProblemOptions options = testing::ServedOptions();
    options.backward = false;
    return options;
  }
  void ExpectKeepsTheContract(const ProblemOptions& options) {
    for (uint32_t i = 0; i < kRingProblems; ++i) {
      const RandomProblem problem(Seed(i), options);
      ASSERT_TRUE(testing::CheckForward(problem, [&](const ForwardArgs& args) {
        return team_.Forward(args, Options());
      })) << problem.Describe();
    }
  }
};

TEST_P(RingTeamTest, KeepsTheContract) { ExpectKeepsTheContract(Served()); }

TEST_P(RingTeamTest, KeepsTheContractWithFewerTokensThanDevices) {
  ExpectKeepsTheContract(Short(Served()));
}

TEST_P(RingTeamTest, GivesTheSameBitsAgain) {
  for (uint32_t i = 0; i < kRingProblems / 4; ++i) {
    const RandomProblem problem(Seed(i), Served());
    ASSERT_EQ(ForwardBits(team_, problem, Options()),
              ForwardBits(team_, problem, Options()))
        << problem.Describe();
  }
}

TEST_P(RingTeamTest, EitherResultAloneIsTheSame) {
  for (uint32_t i = 0; i < kRingProblems / 4; ++i) {
    const RandomProblem problem(Seed(i),
                                i % 2 == 0 ? Served() : Short(Served()));
    RandomProblem::ForwardOutputs both = problem.MakeForwardOutputs();
    ASSERT_TRUE(team_.Forward(problem.Forward(both), Options()).ok());
    RandomProblem::ForwardOutputs alone = problem.MakeForwardOutputs();
    ForwardArgs o = problem.Forward(alone), lse = o;
    o.lse = {};
    lse.o = {};
    ASSERT_TRUE(team_.Forward(o, Options()).ok());
    ASSERT_TRUE(team_.Forward(lse, Options()).ok());
    ASSERT_EQ(alone.o.bytes(), both.o.bytes()) << problem.Describe();
    ASSERT_EQ(alone.lse.bytes(), both.lse.bytes()) << problem.Describe();
  }
}

TEST_P(RingTeamTest, SaysWhatItRanAs) {
  ProblemOptions something = Served();
  something.empty_sizes = something.lens = something.masks = false;
  const RandomProblem problem(1, something);
  ForwardBits(team_, problem, Options());
  EXPECT_EQ(team_.report.kind, GetParam().plan);
  EXPECT_GT(team_.report.predicted, absl::ZeroDuration());
}

TEST_P(RingTeamTest, ChargesWhatPlansTake) {
  for (uint32_t i = 0; i < 4 * kRingProblems; ++i) {
    const RandomProblem problem(Seed(i),
                                i % 2 == 0 ? Served() : Short(Served()));
    RandomProblem::ForwardOutputs out = problem.MakeForwardOutputs();
    SCOPED_TRACE(problem.Describe());
    ExpectCharged(problem.Forward(out));
  }
}

INSTANTIATE_TEST_SUITE_P(All, RingTeamTest,
                         ::testing::ValuesIn(testing::RingParams()),
                         testing::NameOf);
INSTANTIATE_TEST_SUITE_P(Kv, RingTeamTest,
                         ::testing::ValuesIn(testing::KvParams()),
                         testing::NameOf);

}  // namespace
}  // namespace attnd
