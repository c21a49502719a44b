// Backward of plans in which columns go round, and of kv, on virtual CPU
// devices: within the contract's bound of float64, whatever the shapes, and the
// same each time.

#include <cstdint>

#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/team/ring_team.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::BackwardBits;
using testing::kRingProblems;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::ServedOptions;

class RingBackwardTeamTest : public testing::RingTeam {
 protected:
  void ExpectKeepsTheContract(const ProblemOptions& options) {
    for (uint32_t i = 0; i < kRingProblems / 2; ++i) {
      const RandomProblem problem(Seed(i), options);
      // Sums of several terms are rounded more often.
      ASSERT_TRUE(testing::CheckBackward(
          problem,
          [&](const BackwardArgs& args) {
            return team_.Backward(args, Options());
          },
          testing::Slack::kApproximations))
          << problem.Describe();
    }
  }
  // Long ones, and ones of fewer tokens than devices, in turn.
  static ProblemOptions AnyLength(uint32_t i) {
    return i % 2 == 0 ? ServedOptions() : Short(ServedOptions());
  }
};

TEST_P(RingBackwardTeamTest, KeepsTheContract) {
  ExpectKeepsTheContract(ServedOptions());
}

TEST_P(RingBackwardTeamTest, KeepsTheContractWithFewerTokensThanDevices) {
  ExpectKeepsTheContract(Short(ServedOptions()));
}

TEST_P(RingBackwardTeamTest, GivesTheSameBitsAgain) {
  for (uint32_t i = 0; i < kRingProblems / 4; ++i) {
    const RandomProblem problem(Seed(i), ServedOptions());
    ASSERT_EQ(BackwardBits(team_, problem, Options()),
              BackwardBits(team_, problem, Options()))
        << problem.Describe();
  }
}

TEST_P(RingBackwardTeamTest, EachGradientAloneIsTheSame) {
  for (uint32_t i = 0; i < kRingProblems / 4; ++i) {
    const RandomProblem problem(Seed(i), AnyLength(i));
    RandomProblem::BackwardOutputs all = problem.MakeBackwardOutputs();
    ASSERT_TRUE(team_.Backward(problem.Backward(all), Options()).ok());
    for (int which = 0; which < 3; ++which) {
      RandomProblem::BackwardOutputs alone = problem.MakeBackwardOutputs();
      BackwardArgs args = problem.Backward(alone);
      if (which != 0) args.dq = {};
      for (KvSegment& segment : alone.segments) {
        if (which != 1) segment.dk = {};
        if (which != 2) segment.dv = {};
      }
      ASSERT_TRUE(team_.Backward(args, Options()).ok());
      if (which == 0) {
        ASSERT_EQ(alone.dq.bytes(), all.dq.bytes()) << problem.Describe();
      }
      for (size_t n = 0; n < all.segments.size(); ++n) {
        const auto& got = which == 1 ? alone.dk[n] : alone.dv[n];
        const auto& both = which == 1 ? all.dk[n] : all.dv[n];
        if (which == 0) continue;
        ASSERT_EQ(got.bytes(), both.bytes()) << problem.Describe();
      }
    }
  }
}

TEST_P(RingBackwardTeamTest, SaysWhatItRanAs) {
  ProblemOptions something = ServedOptions();
  something.empty_sizes = something.lens = something.masks = false;
  const RandomProblem problem(1, something);
  BackwardBits(team_, problem, Options());
  EXPECT_EQ(team_.report.kind, GetParam().plan);
  EXPECT_GT(team_.report.predicted, absl::ZeroDuration());
}

TEST_P(RingBackwardTeamTest, ChargesWhatPlansTake) {
  for (uint32_t i = 0; i < 2 * kRingProblems; ++i) {
    const RandomProblem problem(Seed(i), AnyLength(i));
    RandomProblem::BackwardOutputs out = problem.MakeBackwardOutputs();
    SCOPED_TRACE(problem.Describe());
    ExpectCharged(problem.Backward(out));
  }
}

INSTANTIATE_TEST_SUITE_P(All, RingBackwardTeamTest,
                         ::testing::ValuesIn(testing::RingParams()),
                         testing::NameOf);
INSTANTIATE_TEST_SUITE_P(Kv, RingBackwardTeamTest,
                         ::testing::ValuesIn(testing::KvParams()),
                         testing::NameOf);

}  // namespace
}  // namespace attnd
