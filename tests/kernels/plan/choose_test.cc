// What kAuto is, of devices whose rates are known.

#include "kernels/plan/choose.h"

#include <cstdint>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/predict.h"
#include "kernels/plan/validate.h"
#include "tests/kernels/plan/causal_request.h"
#include "tests/kernels/plan/gpu_rates.h"
#include "tests/kernels/plan/random_request.h"

namespace attnd::plan {
namespace {

using ::testing::HasSubstr;

PlanRequest OnGpus(int64_t tokens, int64_t heads) {
  PlanRequest request = Causal(PlanKind::kAuto, tokens, heads);
  request.problems[0].outputs[TensorId::kLse] = DType::kF32;
  request.rates = RoundGpuRates();
  return request;
}

// One row over `columns`, by a kernel that shares them out.
PlanRequest Decode(int64_t columns, int64_t kv_heads) {
  PlanRequest request = OnGpus(1, kv_heads);
  SequenceShape& sequence = request.sequences[0];
  sequence.sees.columns = columns;
  sequence.sees.q_start = columns - 1;
  sequence.unit = {16, 1, columns, 1};
  return request;
}

TEST(ChooseTest, IsThePlanThatIsPredictedQuickest) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    PlanRequest request = RandomRequest(seed);
    request.rates = RoundGpuRates();
    request.kind = PlanKind::kAuto;
    const Plan plan = MakePlan(request, 3);
    ASSERT_TRUE(Validate(request, plan).ok()) << seed;
    EXPECT_NE(plan.kind, PlanKind::kAuto);
    EXPECT_NE(plan.kind, PlanKind::kOneDevice);
    const absl::Duration chosen = Predict(request, plan);
    for (const PlanKind kind : Candidates()) {
      PlanRequest forced = request;
      forced.kind = kind;
      const Plan other = MakePlan(forced, 3);
      // As near as may be, for the sake of an earlier kind.
      EXPECT_LE(chosen, 1.03 * Predict(forced, other))
          << seed << PlanName(kind);
      if (kind != plan.kind) continue;
      EXPECT_EQ(Predict(forced, other), chosen) << seed;
      EXPECT_EQ(other.steps.size(), plan.steps.size()) << seed;
    }
  }
}

TEST(ChooseTest, HeadsThatDivideNeedNothingOfEachOther) {
  PlanRequest request = OnGpus(4096, 16);
  request.inputs = InputsLie::kWherePlanned;
  EXPECT_EQ(MakePlan(request, 2).kind, PlanKind::kHeads);
}

// Without `kv` one device has all columns of the one head.
TEST(ChooseTest, DecodeOfOneHeadIsSharedOutByColumns) {
  for (const InputsLie inputs : {InputsLie::kOnHost, InputsLie::kByRanges}) {
    PlanRequest request = Decode(131072, 1);
    request.inputs = inputs;
    const Plan plan = MakePlan(request, 2);
    EXPECT_EQ(plan.kind, PlanKind::kKv);
    EXPECT_EQ(plan.cost.devices[0].flops, plan.cost.devices[1].flops);
  }
}

// A head cut by rows is wanted whole by both devices, and its K and V come from
// the host twice; by tokens they come once, and then from the other device.
TEST(ChooseTest, FewerHeadsThanDevicesAreSharedOutByTokens) {
  const PlanRequest request = OnGpus(65536, 1);
  const Plan plan = MakePlan(request, 2);
  EXPECT_NE(plan.kind, PlanKind::kHeads);
  EXPECT_GT(plan.cost.devices[0].pulled_bytes, 0);
}

TEST(ChooseTest, SaysWhatEachKindShouldTake) {
  const Plan plan = MakePlan(OnGpus(16384, 1), 2);
  EXPECT_THAT(plan.why,
              HasSubstr("; chosen by predicted milliseconds: heads "));
  for (const PlanKind kind : Candidates()) {
    EXPECT_THAT(plan.why, HasSubstr(PlanName(kind)));
  }
}

TEST(ChooseTest, OfManySequencesItIsHeads) {
  PlanRequest request = OnGpus(128, 1);
  request.sequences.resize(65, request.sequences.front());
  const Plan plan = MakePlan(request, 2);
  EXPECT_EQ(plan.kind, PlanKind::kHeads);
  EXPECT_THAT(plan.why, Not(HasSubstr("chosen")));
  // Of more devices fewer are many.
  request.sequences.resize(17);
  EXPECT_THAT(MakePlan(request, 8).why, Not(HasSubstr("chosen")));
  EXPECT_THAT(MakePlan(request, 2).why, HasSubstr("chosen"));
}

// Nobody waits for a plan of 65,536 sequences to be told that.
TEST(ChooseTest, ManySequencesAreSharedByTheirWorkAlone) {
  PlanRequest request = OnGpus(128, 1);
  request.sequences.resize(65536, request.sequences.front());
  EXPECT_FALSE(ChooseShared(request, 2).has_value());  // 0.5 ms
  request = OnGpus(1024, 1);
  request.sequences.resize(65536, request.sequences.front());
  const auto shared = ChooseShared(request, 2);
  ASSERT_TRUE(shared.has_value());
  EXPECT_EQ(shared->kind, PlanKind::kHeads);
}

TEST(ChooseTest, OneDeviceAloneComparesNothing) {
  EXPECT_EQ(MakePlan(OnGpus(16384, 1), 1).kind, PlanKind::kHeads);
}

TEST(ChooseTest, IsSharedWhereMuchIsGained) {
  // 29 ms of computing on one device.
  const auto shared = ChooseShared(OnGpus(65536, 16), 2);
  ASSERT_TRUE(shared.has_value());
  EXPECT_EQ(shared->kind, MakePlan(OnGpus(65536, 16), 2).kind);
  EXPECT_THAT(shared->why,
              HasSubstr("chosen by predicted milliseconds: heads "));
  EXPECT_THAT(shared->why, HasSubstr(" by one device"));
  // A quarter of a millisecond, of which not one can be gained.
  EXPECT_FALSE(ChooseShared(OnGpus(4096, 16), 2).has_value());
  // One device alone has its inputs as they arrive. Two bring them to
  // themselves after that, which here takes longer than all else.
  PlanRequest request = OnGpus(16384, 16);
  EXPECT_FALSE(ChooseShared(request, 2).has_value());
  request.rates.upload.bytes = request.rates.download.bytes = 1e15;
  EXPECT_FALSE(ChooseShared(request, 2).has_value());  // gains 0.9 ms
  request.rates.forward.flops /= 2;
  EXPECT_TRUE(ChooseShared(request, 2).has_value());
  // There is nobody to share with.
  EXPECT_FALSE(ChooseShared(OnGpus(65536, 16), 1).has_value());
}

}  // namespace
}  // namespace attnd::plan
