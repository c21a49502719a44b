// Backward of plans in which columns go round, with one thing wrong in them.

#include <optional>
#include <string>
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

class RingBackwardValidateTest : public ::testing::TestWithParam<PlanKind> {
 protected:
  RingBackwardValidateTest() : request_(Backward(Causal(GetParam(), 512, 2))) {
    // All devices have a part at each step.
    request_.sequences[0].sees.right = -1;
    plan_ = MakePlan(request_, kDevices);
    EXPECT_EQ(Says(), "");
  }

  std::string Says() const {
    return std::string(Validate(request_, plan_).message());
  }
  // The columns of a device's `turn`-th part that adds to dK.
  Part& PartOf(int device, int turn) {
    for (Step& step : plan_.steps) {
      auto* compute = std::get_if<Compute>(&step.what);
      if (compute == nullptr || step.device != device) continue;
      Part& part = compute->parts.front();
      if (part.dq_before.has_value() && turn-- == 0) return part;
    }
    ADD_FAILURE() << "no such part";
    return std::get<Compute>(plan_.steps.back().what).parts.front();
  }

  PlanRequest request_;
  Plan plan_;
};

TEST_P(RingBackwardValidateTest, WhatIsNotAddedIsMissed) {
  const Plan good = plan_;
  PartOf(1, 0).dq_before.reset();
  EXPECT_THAT(Says(), HasSubstr("sends what is over some columns alone"));
  plan_ = good;
  PartOf(1, 1).columns[0].dk_before.reset();
  EXPECT_THAT(Says(), HasSubstr("sends what is over some rows alone"));
  plan_ = good;
  PartOf(2, 2).columns[0].dv_before.reset();
  EXPECT_THAT(Says(), HasSubstr("sends what is over some rows alone"));
}

TEST_P(RingBackwardValidateTest, NothingIsAddedTwice) {
  // A sum of what was added to, and of what that gave.
  const Columns& columns = PartOf(1, 1).columns[0];
  Sum sum{{*columns.dk, *columns.dk_before},
          static_cast<int>(plan_.buffers.size()),
          plan_.buffers[*columns.dk].slice};
  plan_.buffers.push_back(plan_.buffers[*columns.dk]);
  for (Buffer& buffer : plan_.buffers) buffer.reuses.reset();
  std::vector<int> after;
  for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
    after.push_back(i);
  }
  plan_.steps.push_back({1, std::move(sum), after});
  EXPECT_THAT(Says(), HasSubstr("counts the same pairs twice"));
}

TEST_P(RingBackwardValidateTest, WhatIsAddedToIsNotRounded) {
  plan_.buffers[*PartOf(1, 1).dq_before].dtype = DType::kBF16;
  EXPECT_THAT(Says(), HasSubstr("adds to what was rounded"));
}

TEST_P(RingBackwardValidateTest, WhatIsAddedToIsTheSameTensor) {
  Columns& columns = PartOf(1, 1).columns[0];
  columns.dk_before = columns.dv_before;
  EXPECT_THAT(Says(), HasSubstr("adds to another tensor"));
  columns.dk.reset();
  EXPECT_THAT(Says(), HasSubstr("adds to what is not wanted"));
}

// Only the part that adds to it may write over it, and only as it lies.
TEST_P(RingBackwardValidateTest, MemoryIsWrittenOverByWhoAddsToItAlone) {
  const Plan good = plan_;
  const Part& part = PartOf(1, 1);
  const int dq = *part.buffers[TensorId::kDQ];
  ASSERT_EQ(plan_.buffers[dq].reuses, part.dq_before);
  const int dk_before = *part.columns[0].dk_before;
  ASSERT_EQ(plan_.buffers[*part.columns[0].dk].reuses, dk_before);
  // Another part of the same step would read it meanwhile.
  for (Step& step : plan_.steps) {
    auto* compute = std::get_if<Compute>(&step.what);
    if (compute == nullptr || &compute->parts.front() != &PartOf(1, 1))
      continue;
    Part other = compute->parts.front();
    other.buffers[TensorId::kDQ] = static_cast<int>(plan_.buffers.size());
    plan_.buffers.push_back(plan_.buffers[dq]);
    plan_.buffers.back().reuses.reset();
    other.columns.clear();
    compute->parts.push_back(other);
    break;
  }
  EXPECT_THAT(Says(), HasSubstr("writes over what step"));
  plan_ = good;
  plan_.buffers[dq].slice.heads += 1;
  EXPECT_THAT(Says(), HasSubstr("writes over what step"));
}

INSTANTIATE_TEST_SUITE_P(All, RingBackwardValidateTest,
                         ::testing::ValuesIn(kRingKinds),
                         [](const ::testing::TestParamInfo<PlanKind>& info) {
                           return std::string(PlanName(info.param));
                         });

}  // namespace
}  // namespace attnd::plan
