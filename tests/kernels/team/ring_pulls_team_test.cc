// Plans of `ring`, `striped` and `zigzag` whose blocks are pulled from all, on
// virtual CPU devices: within the contract's bound of float64, whatever the
// shapes and the phases, and the same each time. No service asks for them, so
// they run here by themselves.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/plan_request.h"
#include "kernels/team/crew.h"
#include "kernels/team/host_tensors.h"
#include "kernels/team/member_stream.h"
#include "kernels/team/plan_run.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/team/ring_team.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::Bits;
using testing::kRingProblems;
using testing::ProblemOptions;
using testing::RandomProblem;

class RingPullsTeamTest : public ::testing::TestWithParam<testing::RingParam> {
 protected:
  RingPullsTeamTest()
      : backends_(testing::Cpus(GetParam().devices)),
        crew_(GetParam().devices) {
    for (const auto& backend : backends_) {
      members_.push_back(backend->NewMemberStream().value());
      streams_.push_back(members_.back().get());
    }
  }

  absl::Status Forward(const ForwardArgs& args, int phases) {
    return Run({{args}, {}},
               plan::Describe({&args, 1}, options_, *backends_[0]), phases);
  }
  absl::Status Backward(const BackwardArgs& args, int phases) {
    return Run({{}, {args}},
               plan::Describe({&args, 1}, options_, *backends_[0]), phases);
  }

  Bits ForwardBits(const RandomProblem& problem, int phases) {
    RandomProblem::ForwardOutputs out = problem.MakeForwardOutputs();
    EXPECT_TRUE(Forward(problem.Forward(out), phases).ok());
    return {out.o.bytes(), out.lse.bytes()};
  }
  Bits BackwardBits(const RandomProblem& problem, int phases) {
    RandomProblem::BackwardOutputs out = problem.MakeBackwardOutputs();
    EXPECT_TRUE(Backward(problem.Backward(out), phases).ok());
    Bits bits = {out.dq.bytes()};
    for (const auto& dk : out.dk) bits.push_back(dk.bytes());
    for (const auto& dv : out.dv) bits.push_back(dv.bytes());
    return bits;
  }

  // Problems, one after another, each in another number of phases: long ones,
  // and ones of fewer tokens than devices.
  std::unique_ptr<RandomProblem> Draw(uint32_t i, bool backward) const {
    ProblemOptions options = testing::ServedOptions();
    options.backward = backward;
    if (i % 2 == 1) options.max_q_len = options.max_kv_len = 9;
    const uint32_t seed = i + 1000 * static_cast<uint32_t>(GetParam().devices) +
                          20000 * static_cast<uint32_t>(GetParam().plan);
    return std::make_unique<RandomProblem>(seed, options);
  }
  static int Phases(uint32_t i) { return static_cast<int>(i / 2 % 5); }

 private:
  absl::Status Run(Group group, plan::PlanRequest request, int phases) {
    request.transport = plan::Transport::kPull;
    request.phases = phases;
    FillPadding(group);
    const plan::Plan plan = plan::MakePlan(request, GetParam().devices);
    EXPECT_TRUE(absl::StrContains(plan.why, "pulled from all"));
    PlanRun run(request, plan, group, options_, streams_, 0);
    absl::Status status = run.Allocate();
    if (status.ok()) status = run.Run(crew_);
    for (const auto& member : members_) status.Update(member->Wait().status());
    for (const auto& member : members_) member->Reset();
    return status;
  }

  const GroupOptions options_ = {.deterministic = true,
                                 .plan = GetParam().plan};
  const std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<std::unique_ptr<MemberStream>> members_;
  std::vector<MemberStream*> streams_;
  Crew crew_;
};

TEST_P(RingPullsTeamTest, ForwardKeepsTheContract) {
  for (uint32_t i = 0; i < kRingProblems; ++i) {
    const auto problem = Draw(i, /*backward=*/false);
    ASSERT_TRUE(testing::CheckForward(*problem, [&](const ForwardArgs& args) {
      return Forward(args, Phases(i));
    })) << problem->Describe();
  }
}

TEST_P(RingPullsTeamTest, BackwardKeepsTheContract) {
  for (uint32_t i = 0; i < kRingProblems; ++i) {
    const auto problem = Draw(i, /*backward=*/true);
    // Sums of several terms are rounded more often.
    ASSERT_TRUE(testing::CheckBackward(
        *problem,
        [&](const BackwardArgs& args) { return Backward(args, Phases(i)); },
        testing::Slack::kApproximations))
        << problem->Describe();
  }
}

TEST_P(RingPullsTeamTest, GivesTheSameBitsAgain) {
  for (uint32_t i = 0; i < kRingProblems / 4; ++i) {
    const auto problem = Draw(i, /*backward=*/true);
    ASSERT_EQ(ForwardBits(*problem, Phases(i)),
              ForwardBits(*problem, Phases(i)))
        << problem->Describe();
    ASSERT_EQ(BackwardBits(*problem, Phases(i)),
              BackwardBits(*problem, Phases(i)))
        << problem->Describe();
  }
}

// Of as many phases as devices the same is merged as by ring, in one order.
TEST_P(RingPullsTeamTest, AForwardOfABlockAPhaseHasTheBitsOfARing) {
  testing::TeamOf ring(testing::Cpus(GetParam().devices));
  const GroupOptions options = {.deterministic = true, .plan = GetParam().plan};
  for (uint32_t i = 0; i < kRingProblems / 4; ++i) {
    const auto problem = Draw(i, /*backward=*/false);
    ASSERT_EQ(ForwardBits(*problem, GetParam().devices),
              testing::ForwardBits(*ring.team, *problem, options))
        << problem->Describe();
  }
}

INSTANTIATE_TEST_SUITE_P(All, RingPullsTeamTest,
                         ::testing::ValuesIn(testing::RingParams()),
                         testing::NameOf);

}  // namespace
}  // namespace attnd
