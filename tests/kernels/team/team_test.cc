// What a team computes is what one device does: the contract's bound, forward
// bit by bit, the same each time, for every plan and any number of devices.

#include "kernels/team/team.h"

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/plan_request.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::BackwardBits;
using testing::Cpus;
using testing::Device;
using testing::ForwardBits;
using testing::OneCpu;
using testing::OwnedRows;
using testing::OwnedTensor;
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

  // Whether the team would share such a request, of so many FLOPs.
  bool IsShared(const Problem& problem, double flops) const {
    const Problem* const problems[] = {&problem};
    return team_.backend->ChoosePlan(Op::kForward, flops, {}, problems)
        .has_value();
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

// Of 65 tokens a device has the last one alone, as columns are cut in tiles:
// then terms of a gradient, in which a head's tokens are side by side, have
// more tokens than what they are added up to.
TEST_P(TeamTest, BackwardOfATokenThatADeviceHasAlone) {
  constexpr int64_t kTokens = 65, kKvHeads = 3, kHeads = 6, kDim = 4;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  const auto draw = [&](int64_t heads) {
    OwnedTensor t(DType::kF32, 1, kTokens, heads, kDim, /*heads_first=*/true);
    for (int64_t i = 0; i < kTokens; ++i)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < kDim; ++d) t.Set(0, i, h, d, normal(random));
    return t;
  };
  const OwnedTensor q = draw(kHeads), k = draw(kKvHeads), v = draw(kKvHeads),
                    o = draw(kHeads), d_o = draw(kHeads);
  OwnedRows lse(1, kHeads, kTokens);
  for (int64_t h = 0; h < kHeads; ++h)
    for (int64_t i = 0; i < kTokens; ++i) lse.Set(0, h, i, 10);

  const auto gradients = [&](Device& device) {
    OwnedTensor dq = q, dk = k, dv = v;
    KvSegment segment;
    segment.k = k.view();
    segment.v = v.view();
    segment.len = kTokens;
    segment.dk = dk.view();
    segment.dv = dv.view();
    BackwardArgs args;
    Problem& p = args.problem;
    p.batch = 1;
    p.q_len = kTokens;
    p.q_heads = kHeads;
    p.kv_heads = kKvHeads;
    p.head_dim = p.value_dim = kDim;
    p.q = q.view();
    p.kv = {&segment, 1};
    p.mask.causal = true;
    args.d_o = d_o.view();
    args.o = o.view();
    args.lse = std::as_const(lse).view();
    args.dq = dq.view();
    EXPECT_TRUE(device.Backward(args, Options()).ok());
    return std::vector{dq.Values(), dk.Values(), dv.Values()};
  };
  Device one(OneCpu());
  const auto expected = gradients(one), got = gradients(team_);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(got[i],
                ::testing::Pointwise(::testing::DoubleNear(1e-5), expected[i]));
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

// Admission charges what a plan may take without making one.
TEST_P(TeamTest, ChargesWhatPlansTake) {
  for (uint32_t i = 0; i < kProblems; ++i) {
    const RandomProblem problem(Seed(i), ServedOptions());
    RandomProblem::BackwardOutputs out = problem.MakeBackwardOutputs();
    RandomProblem::ForwardOutputs forward = problem.MakeForwardOutputs();
    const BackwardArgs args = problem.Backward(out);
    const ForwardArgs forward_args = problem.Forward(forward);
    const auto check = [&](const plan::PlanRequest& request) {
      double bytes = 0;
      for (const plan::PlanCost::Device& device :
           plan::MakePlan(request, GetParam().devices).cost.devices) {
        bytes += static_cast<double>(device.memory_bytes);
      }
      EXPECT_LE(bytes,
                plan::MostBufferBytes(request.op, problem.problem(),
                                      GetParam().plan, GetParam().devices))
          << problem.Describe();
    };
    check(plan::Describe({&args, 1}, Options(), *cpu_.members[0]));
    check(plan::Describe({&forward_args, 1}, Options(), *cpu_.members[0]));
  }
}

// What a message asks for that nobody has looked at yet: it takes no time, and
// no more than an integer holds.
TEST_P(TeamTest, SizesThatNoDeviceHasAreNoTrouble) {
  KvSegment segment;
  segment.len = int64_t{1} << 31;
  Problem problem;
  problem.batch = 60000;
  problem.q_len = segment.len;
  problem.q_heads = problem.kv_heads = 32;
  problem.head_dim = problem.value_dim = 256;
  problem.kv = {&segment, 1};
  const Backend& team = *team_.backend;
  EXPECT_TRUE(team.Supports(Op::kBackward, problem, Options()).ok());
  EXPECT_GT(team.ScratchBytes(Op::kBackward, problem, Options()),
            int64_t{1} << 50);
  problem.batch = int64_t{1} << 31;
  EXPECT_TRUE(
      absl::IsUnimplemented(team.Supports(Op::kForward, problem, Options())));
  EXPECT_FALSE(IsShared(problem, 1e30));
}

TEST_P(TeamTest, IsForLargeRequestsThatSeveralDevicesEndSooner) {
  KvSegment segment;
  segment.len = 4096;
  Problem problem;
  problem.batch = 1;
  problem.q_len = segment.len;
  problem.q_heads = problem.kv_heads = 2 * GetParam().devices;
  problem.head_dim = problem.value_dim = 64;
  problem.kv = {&segment, 1};
  const bool several = GetParam().devices > 1;
  EXPECT_EQ(IsShared(problem, 1e15), several);
  EXPECT_FALSE(IsShared(problem, 1e6));
  // Heads need not divide: one is cut by rows then.
  problem.q_heads = problem.kv_heads = 2 * GetParam().devices + 1;
  EXPECT_EQ(IsShared(problem, 1e15), several);
  // Of one row over few columns there is nothing to share out.
  segment.len = problem.q_len = problem.q_heads = problem.kv_heads = 1;
  EXPECT_FALSE(IsShared(problem, 1e15));
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
