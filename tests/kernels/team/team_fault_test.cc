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
#include "tests/kernels/team/faulty_member.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::BackwardBits;
using testing::Bits;
using testing::Device;
using testing::FaultPlan;
using testing::FaultyBackend;
using testing::ForwardBits;
using ::testing::HasSubstr;
using testing::OneCpu;
using testing::RandomProblem;
using testing::ServedOptions;
using testing::TeamOf;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint32_t kRuns = 30;
#else
constexpr uint32_t kRuns = 220;
#endif

// A team of devices that can break.
class Breakable {
 public:
  explicit Breakable(int size) {
    std::vector<std::unique_ptr<Backend>> all;
    all.reserve(size);
    for (int i = 0; i < size; ++i) {
      auto member = std::make_unique<FaultyBackend>(OneCpu(), i);
      members_.push_back(member.get());
      all.push_back(std::move(member));
    }
    team_ = std::make_unique<TeamOf>(std::move(all));
  }

  FaultyBackend& member(int i) { return *members_[i]; }
  Device& device() { return *team_->team; }
  void ExpectNothingLeft() const {
    for (FaultyBackend* member : members_) EXPECT_EQ(member->live_bytes(), 0);
  }

 private:
  std::vector<FaultyBackend*> members_;
  std::unique_ptr<TeamOf> team_;
};

GroupOptions Options(PlanKind plan) {
  return {.deterministic = true, .plan = plan};
}

// What a team that has never had more than `size` devices computes.
Bits Expected(int size, const RandomProblem& problem, Op op,
              const GroupOptions& options) {
  TeamOf team(testing::Cpus(size));
  return op == Op::kForward ? ForwardBits(*team.team, problem, options)
                            : BackwardBits(*team.team, problem, options);
}

TEST(TeamFaultTest, OthersComputeWhatABrokenMemberHad) {
  std::mt19937 random(7);
  int failed = 0;
  for (uint32_t run = 0; run < kRuns; ++run) {
    const int size = 2 + static_cast<int>(run % 3);
    const Op op = run % 2 == 0 ? Op::kForward : Op::kBackward;
    const GroupOptions options =
        Options(run / 2 % 2 == 0 ? PlanKind::kHeads : PlanKind::kGather);
    const RandomProblem problem(run, ServedOptions());
    Breakable team(size);
    const auto bits = [&] {
      return op == Op::kForward ? ForwardBits(team.device(), problem, options)
                                : BackwardBits(team.device(), problem, options);
    };
    bits();
    FaultyBackend& broken = team.member(static_cast<int>(random() % size));
    const int calls = broken.faults().calls();
    if (calls == 0) continue;
    broken.faults().FailAfter(static_cast<int>(random() % calls),
                              absl::InternalError("out of order"));
    ASSERT_EQ(bits(), Expected(size - 1, problem, op, options))
        << problem.Describe();
    EXPECT_TRUE(broken.faults().has_failed());
    EXPECT_EQ(team.device().report.devices.size(), size - 1);
    EXPECT_THAT(team.device().report.why, HasSubstr("out of order"));
    team.ExpectNothingLeft();
    // The next one does without it from the start.
    ASSERT_EQ(bits(), Expected(size - 1, problem, op, options));
    team.ExpectNothingLeft();
    ++failed;
  }
  EXPECT_GT(failed, kRuns / 2);
}

TEST(TeamFaultTest, LackOfMemoryAnywhereIsSaidAndForgotten) {
  std::mt19937 random(8);
  int said = 0;
  for (uint32_t run = 0; run < kRuns / 2; ++run) {
    const GroupOptions options =
        Options(run % 2 == 0 ? PlanKind::kHeads : PlanKind::kGather);
    const RandomProblem problem(run, ServedOptions());
    Breakable team(3);
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
  Breakable team(2);
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
    Breakable team(2);
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
