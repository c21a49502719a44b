// Plans in which columns go round, with one thing wrong in them.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/validate.h"
#include "tests/kernels/plan/causal_request.h"

namespace attnd::plan {
namespace {

using ::testing::HasSubstr;

constexpr int kDevices = 4;

class RingValidateTest : public ::testing::TestWithParam<PlanKind> {
 protected:
  RingValidateTest() : request_(Causal(GetParam(), 512, 2)) {
    // All devices have a part at each step.
    request_.sequences[0].sees.right = -1;
    request_.problems[0].outputs[TensorId::kO] = DType::kF32;
    request_.problems[0].outputs[TensorId::kLse] = DType::kF32;
    plan_ = MakePlan(request_, kDevices);
    EXPECT_EQ(Says(), "");
  }

  std::string Says() const {
    return std::string(Validate(request_, plan_).message());
  }
  // The first part of a device's `turn`-th Compute.
  Part& PartOf(int device, int turn) {
    for (Step& step : plan_.steps) {
      auto* compute = std::get_if<Compute>(&step.what);
      if (compute == nullptr || step.device != device) continue;
      if (turn-- == 0) return compute->parts.front();
    }
    ADD_FAILURE() << "no such part";
    return std::get<Compute>(plan_.steps.back().what).parts.front();
  }

  PlanRequest request_;
  Plan plan_;
};

// By step, which come before it.
std::vector<std::vector<bool>> Before(const Plan& plan) {
  std::vector<std::vector<bool>> before(plan.steps.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    before[i].resize(plan.steps.size());
    for (const int other : plan.steps[i].after) {
      before[i][other] = true;
      for (size_t j = 0; j < i; ++j) {
        if (before[other][j]) before[i][j] = true;
      }
    }
  }
  return before;
}

// A pull behind another one of its device, into memory that nothing was in.
bool IsForOrderAlone(const Plan& plan, size_t index, int before) {
  const Step& step = plan.steps[index];
  const auto* pull = std::get_if<Pull>(&step.what);
  return pull != nullptr &&
         std::holds_alternative<Pull>(plan.steps[before].what) &&
         plan.steps[before].device == step.device &&
         !plan.buffers[pull->items[0].to].reuses.has_value();
}

void ExpectFindsEveryWaitLeftOut(const PlanRequest& request, int devices) {
  const Plan good = MakePlan(request, devices);
  const std::vector<std::vector<bool>> before = Before(good);
  int left_out = 0;
  for (size_t i = 0; i < good.steps.size(); ++i) {
    for (size_t wait = 0; wait < good.steps[i].after.size(); ++wait) {
      Plan plan = good;
      std::vector<int>& after = plan.steps[i].after;
      after.erase(after.begin() + static_cast<int64_t>(wait));
      // Another wait may imply it.
      if (Before(plan) == before) continue;
      if (IsForOrderAlone(good, i, good.steps[i].after[wait])) continue;
      ++left_out;
      EXPECT_FALSE(Validate(request, plan).ok())
          << i << " " << good.steps[i].after[wait];
    }
  }
  EXPECT_GT(left_out, 4 * devices);
}

TEST_P(RingValidateTest, FindsEveryWaitThatIsLeftOut) {
  ExpectFindsEveryWaitLeftOut(request_, kDevices);
  ExpectFindsEveryWaitLeftOut(Backward(request_), 3);
  // Of stripes dK and dV wait for each other's sums, though they need not.
  if (GetParam() == PlanKind::kStriped) return;
  ExpectFindsEveryWaitLeftOut(Backward(Causal(GetParam(), 512, 1)), 3);
}

TEST_P(RingValidateTest, FindsEveryWaitThatIsLeftOutOfPullsFromAll) {
  request_.transport = Transport::kPull;
  for (const int phases : {0, 2, kDevices}) {
    request_.phases = phases;
    ExpectFindsEveryWaitLeftOut(request_, kDevices);
    ExpectFindsEveryWaitLeftOut(Backward(request_), 3);
  }
}

TEST_P(RingValidateTest, ABlockMustBeReadBeforeTheNextIsWrittenOverIt) {
  const Plan good = plan_;
  int pulls = 0;
  for (size_t i = 0; i < good.steps.size(); ++i) {
    if (!std::holds_alternative<Pull>(good.steps[i].what)) continue;
    for (const int other : good.steps[i].after) {
      // The neighbour's pull of what was there, or the device's own kernels.
      const Step& reader = good.steps[other];
      const bool reads =
          std::holds_alternative<Compute>(reader.what) ||
          (std::holds_alternative<Pull>(reader.what) &&
           std::get<Pull>(reader.what).peer == good.steps[i].device);
      if (!reads) continue;
      ++pulls;
      plan_ = good;
      std::erase(plan_.steps[i].after, other);
      EXPECT_THAT(Says(), HasSubstr("writes over what step"));
    }
  }
  // Two of each pull into memory that was used before.
  EXPECT_EQ(pulls, 2 * kDevices * (kDevices - 2));
}

TEST_P(RingValidateTest, WhatIsLeftUnmergedIsNoResult) {
  const Plan good = plan_;
  for (int turn = 1; turn < kDevices; ++turn) {
    plan_ = good;
    PartOf(1, turn).before.reset();
    EXPECT_THAT(Says(), HasSubstr("sends what is over some columns alone"));
  }
}

TEST_P(RingValidateTest, NothingIsMergedTwice) {
  // Its own block again, whose state it merges with.
  PartOf(1, 1).columns = PartOf(1, 0).columns;
  EXPECT_THAT(Says(), HasSubstr("counts the same pairs twice"));
}

TEST_P(RingValidateTest, AStateIsNotSkipped) {
  // The third turn merges with the first one's results, not the second's.
  PartOf(1, 2).before = PartOf(1, 1).before;
  EXPECT_NE(Says(), "");
  // Nor if they had memory of their own.
  for (Buffer& buffer : plan_.buffers) buffer.reuses.reset();
  EXPECT_THAT(Says(), HasSubstr("sends what is over some columns alone"));
}

TEST_P(RingValidateTest, AStateIsNoResult) {
  const Part& last = PartOf(2, kDevices - 1);
  const int o = *last.buffers[TensorId::kO];
  for (Step& step : plan_.steps) {
    auto* download = std::get_if<Download>(&step.what);
    if (download != nullptr && download->from == o) {
      download->from = *last.before->o;
    }
  }
  EXPECT_THAT(Says(), HasSubstr("sends what is over some columns alone"));
}

TEST_P(RingValidateTest, OAndLseAreMergedTogether) {
  const Plan good = plan_;
  PartOf(1, 2).before->o = PartOf(1, 1).before->o;
  EXPECT_THAT(Says(), HasSubstr("O and LSE of two states"));
  plan_ = good;
  PartOf(1, 2).before->o.reset();
  EXPECT_THAT(Says(), HasSubstr("merges O with no O"));
  plan_ = good;
  std::swap(*PartOf(1, 2).before->o, PartOf(1, 2).before->lse);
  EXPECT_THAT(Says(), HasSubstr("a state that no part has written"));
}

TEST_P(RingValidateTest, AStateIsNotRounded) {
  plan_.buffers[*PartOf(1, 1).before->o].dtype = DType::kBF16;
  EXPECT_THAT(Says(), HasSubstr("a state that no part has written"));
}

TEST_P(RingValidateTest, MemoryIsReusedOnceAndOnTheSameDevice) {
  const Plan good = plan_;
  // Of two buffers of a device's that take over others' memory.
  const int later = *PartOf(1, 3).before->o;
  const int earlier = *PartOf(1, 2).before->o;
  ASSERT_TRUE(good.buffers[later].reuses.has_value());
  plan_.buffers[later].reuses = later;
  EXPECT_THAT(Says(), HasSubstr("reuses a later buffer"));
  plan_.buffers[later].reuses = *PartOf(0, 0).buffers[TensorId::kO];
  EXPECT_THAT(Says(), HasSubstr("reuses another device's memory"));
  plan_.buffers[later].reuses =
      good.buffers[*PartOf(1, 3).buffers[TensorId::kO]].reuses;
  EXPECT_THAT(Says(), HasSubstr("memory is reused twice"));
  // The state that it is merged with.
  plan_ = good;
  plan_.buffers[later].reuses = earlier;
  plan_.buffers[*PartOf(1, 3).buffers[TensorId::kO]].reuses.reset();
  EXPECT_THAT(Says(), HasSubstr("writes over what step"));
  // Memory that costs do not count.
  plan_ = good;
  plan_.buffers[later].reuses.reset();
  EXPECT_THAT(Says(), HasSubstr("costs are wrong"));
}

INSTANTIATE_TEST_SUITE_P(All, RingValidateTest, ::testing::ValuesIn(kRingKinds),
                         [](const ::testing::TestParamInfo<PlanKind>& info) {
                           return std::string(PlanName(info.param));
                         });

}  // namespace
}  // namespace attnd::plan
