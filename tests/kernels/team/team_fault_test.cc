// A member that breaks at any step: the request is computed by the others, or
// says that none is left; nothing is leaked, and the next request succeeds.

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/team/team.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/team/breakable_team.h"
#include "tests/kernels/team/faulty_member.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::Bits;
using testing::BreakableTeam;
using testing::FaultPlan;
using testing::ForwardBits;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RandomProblem;
using testing::ServedOptions;
using testing::TeamOf;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint32_t kRuns = 30;
#else
constexpr uint32_t kRuns = 220;
#endif

BreakableTeam Breakable(int size) { return BreakableTeam(testing::Cpus(size)); }

GroupOptions Options(PlanKind plan) {
  return {.deterministic = true, .plan = plan};
}

// What a team that has never had more than `size` devices computes.
Bits Expected(int size, const RandomProblem& problem, Op op,
              const GroupOptions& options) {
  TeamOf team(testing::Cpus(size));
  return testing::BitsOf(op, *team.team, problem, options);
}

TEST(TeamFaultTest, OthersComputeWhatABrokenMemberHad) {
  testing::ExpectOthersCompute(kRuns, {2, 3, 4}, testing::Cpus);
}

TEST(TeamFaultTest, ARingIsClosedWithoutABrokenMember) {
  testing::ExpectOthersCompute(
      kRuns / 2, {2, 3, 4}, testing::Cpus,
      {PlanKind::kRing, PlanKind::kStriped, PlanKind::kZigzag});
}

TEST(TeamFaultTest, ColumnsAreSharedOutAnewWithoutABrokenMember) {
  testing::ExpectOthersCompute(kRuns / 4, {2, 3, 4}, testing::Cpus,
                               {PlanKind::kKv});
}

TEST(TeamFaultTest, WhatMemoryIsOutOfReachIsSaid) {
  testing::ProblemOptions all_see_all = ServedOptions();
  all_see_all.empty_sizes = all_see_all.lens = all_see_all.masks = false;
  const RandomProblem problem(1, all_see_all);
  BreakableTeam team = Breakable(2);
  const auto why = [&](PlanKind plan) {
    ForwardBits(team.device(), problem, Options(plan));
    return team.device().report.why;
  };
  EXPECT_THAT(why(PlanKind::kGather), Not(HasSubstr("reaches")));
  team.member(0).faults().set_remote(true);
  EXPECT_THAT(
      why(PlanKind::kGather),
      HasSubstr("; cpu:0 reaches cpu:1 through the host's memory alone"));
}

TEST(TeamFaultTest, OneDeviceIsSaid) {
  const RandomProblem problem(5, ServedOptions());
  BreakableTeam team = Breakable(1);
  ForwardBits(team.device(), problem, Options(PlanKind::kGather));
  EXPECT_EQ(team.device().report.why, "there is one device alone");
}

TEST(TeamFaultTest, LackOfMemoryAnywhereIsSaidAndForgotten) {
  std::mt19937 random(8);
  int said = 0;
  for (uint32_t run = 0; run < kRuns / 2; ++run) {
    const GroupOptions options =
        Options(run % 2 == 0 ? PlanKind::kHeads : PlanKind::kGather);
    const RandomProblem problem(run, ServedOptions());
    BreakableTeam team = Breakable(3);
    const Bits right = ForwardBits(team.device(), problem, options);
    FaultPlan& full = team.member(static_cast<int>(random() % 3)).faults();
    full.set_full(run % 4 < 2, run % 4 >= 2);
    RandomProblem::ForwardOutputs out = problem.MakeForwardOutputs();
    const absl::Status status =
        team.device().Forward(problem.Forward(out), options);
    EXPECT_EQ(absl::IsResourceExhausted(status), full.refusals() > 0) << status;
    if (full.refusals() > 0) ++said;
    team.ExpectNothingLeft();
    full.set_full(false, false);
    EXPECT_EQ(ForwardBits(team.device(), problem, options), right);
    EXPECT_EQ(team.device().report.devices.size(), 3);
  }
  EXPECT_GT(said, kRuns / 8);
}

TEST(TeamFaultTest, TheLastOnesFaultIsTheTeams) {
  const RandomProblem problem(3, ServedOptions());
  BreakableTeam team = Breakable(2);
  team.member(0).faults().FailAfter(3, absl::InternalError("first"));
  team.member(1).faults().FailAfter(9, absl::InternalError("last"));
  RandomProblem::ForwardOutputs out = problem.MakeForwardOutputs();
  const absl::Status status =
      team.device().Forward(problem.Forward(out), Options(PlanKind::kHeads));
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  team.ExpectNothingLeft();
}

TEST(TeamFaultTest, GroupsThatRunOneAfterAnotherAllRunAnew) {
  for (int call = 0; call < 40; ++call) {
    const RandomProblem a(11, ServedOptions()), b(12, ServedOptions());
    RandomProblem::ForwardOutputs out_a = a.MakeForwardOutputs();
    RandomProblem::ForwardOutputs out_b = b.MakeForwardOutputs();
    const GroupOptions options = Options(PlanKind::kGather);
    BreakableTeam team = Breakable(2);
    team.member(1).faults().FailAfter(call, absl::InternalError("broken"));
    Stream& stream = *team.device().stream;
    const ForwardArgs args_a = a.Forward(out_a), args_b = b.Forward(out_b);
    ASSERT_TRUE(testing::RunForward(stream, {&args_a, 1}, options).ok());
    ASSERT_TRUE(testing::RunForward(stream, {&args_b, 1}, options).ok());
    ASSERT_TRUE(team.device().Finish(absl::OkStatus()).ok());
    EXPECT_EQ((Bits{out_a.o.bytes(), out_a.lse.bytes()}),
              Expected(1, a, Op::kForward, options));
    EXPECT_EQ((Bits{out_b.o.bytes(), out_b.lse.bytes()}),
              Expected(1, b, Op::kForward, options));
    team.ExpectNothingLeft();
  }
}

}  // namespace
}  // namespace attnd
