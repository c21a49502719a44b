// Forward of plans in which columns go round, on virtual CPU devices: within
// the contract's bound of float64, whatever the shapes, and the same each time.

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/plan_request.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::Cpus;
using testing::Device;
using testing::ForwardBits;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::TeamOf;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint32_t kProblems = 12;
#else
constexpr uint32_t kProblems = 60;
#endif

struct RingParam {
  int devices;
  PlanKind plan;
};

class RingTeamTest : public ::testing::TestWithParam<RingParam> {
 protected:
  static GroupOptions Options() {
    return {.deterministic = true, .plan = GetParam().plan};
  }
  static ProblemOptions Served() {
    ProblemOptions options = testing::ServedOptions();
    options.backward = false;
    return options;
  }
  // Fewer tokens than devices, and devices that have none.
  static ProblemOptions Short() {
    ProblemOptions options = Served();
    options.max_q_len = options.max_kv_len = 9;
    return options;
  }
  // Other problems for each parameter.
  static uint32_t Seed(uint32_t i) {
    return i + 1000 * static_cast<uint32_t>(GetParam().devices) +
           20000 * static_cast<uint32_t>(GetParam().plan);
  }
  void ExpectKeepsTheContract(const ProblemOptions& options) {
    for (uint32_t i = 0; i < kProblems; ++i) {
      const RandomProblem problem(Seed(i), options);
      ASSERT_TRUE(testing::CheckForward(problem, [&](const ForwardArgs& args) {
        return team_.Forward(args, Options());
      })) << problem.Describe();
    }
  }

  TeamOf cpu_{Cpus(GetParam().devices)};
  Device& team_ = *cpu_.team;
};

TEST_P(RingTeamTest, KeepsTheContract) { ExpectKeepsTheContract(Served()); }

TEST_P(RingTeamTest, KeepsTheContractWithFewerTokensThanDevices) {
  ExpectKeepsTheContract(Short());
}

TEST_P(RingTeamTest, GivesTheSameBitsAgain) {
  for (uint32_t i = 0; i < kProblems / 4; ++i) {
    const RandomProblem problem(Seed(i), Served());
    ASSERT_EQ(ForwardBits(team_, problem, Options()),
              ForwardBits(team_, problem, Options()))
        << problem.Describe();
  }
}

TEST_P(RingTeamTest, EitherResultAloneIsTheSame) {
  for (uint32_t i = 0; i < kProblems / 4; ++i) {
    const RandomProblem problem(Seed(i), i % 2 == 0 ? Served() : Short());
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

// Admission charges what a plan may take without making one.
TEST_P(RingTeamTest, ChargesWhatPlansTake) {
  for (uint32_t i = 0; i < 4 * kProblems; ++i) {
    const RandomProblem problem(Seed(i), i % 2 == 0 ? Served() : Short());
    RandomProblem::ForwardOutputs out = problem.MakeForwardOutputs();
    const ForwardArgs args = problem.Forward(out);
    const plan::PlanRequest request =
        plan::Describe({&args, 1}, Options(), *cpu_.members[0]);
    double bytes = 0;
    for (const plan::PlanCost::Device& device :
         plan::MakePlan(request, GetParam().devices).cost.devices) {
      bytes += static_cast<double>(device.memory_bytes);
    }
    EXPECT_LE(bytes, plan::MostBufferBytes(Op::kForward, problem.problem(),
                                           GetParam().plan, GetParam().devices))
        << problem.Describe();
  }
}

std::vector<RingParam> Params() {
  std::vector<RingParam> params;
  for (const PlanKind plan :
       {PlanKind::kRing, PlanKind::kStriped, PlanKind::kZigzag}) {
    for (const int devices : {2, 3, 4, 7}) params.push_back({devices, plan});
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(All, RingTeamTest, ::testing::ValuesIn(Params()),
                         [](const ::testing::TestParamInfo<RingParam>& info) {
                           return absl::StrCat(PlanName(info.param.plan),
                                               info.param.devices);
                         });

}  // namespace
}  // namespace attnd
