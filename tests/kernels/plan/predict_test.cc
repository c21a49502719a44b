// How long plans should take, where that can be told by hand.

#include "kernels/plan/predict.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/tiles.h"
#include "tests/kernels/plan/causal_request.h"

namespace attnd::plan {
namespace {

constexpr int64_t kTokens = 4096, kHeads = 16;
// Of Q, K, V or O.
constexpr double kTensorBytes = kTokens * kHeads * 128 * 2;

// On a device that takes no time but for what a test gives it.
PlanRequest Ideal(int64_t heads = kHeads) {
  PlanRequest request = Causal(PlanKind::kHeads, kTokens, heads);
  request.sequences[0].sees.right = -1;
  request.rates.forward.flops = request.rates.backward.flops = 1e30;
  request.rates.memory_bytes = 1e30;
  request.rates.upload.bytes = request.rates.download.bytes = 1e30;
  request.rates.pull.bytes = 1e30;
  return request;
}

double Seconds(const PlanRequest& request, int devices = 2) {
  return absl::ToDoubleSeconds(Predict(request, MakePlan(request, devices)));
}

// So short that its heads come in one section.
constexpr int64_t kFewTokens = 128;
PlanRequest ShortOne() {
  PlanRequest request = Ideal();
  request.sequences[0].sees.rows = request.sequences[0].sees.columns =
      kFewTokens;
  return request;
}

TEST(PredictTest, UploadsAndDownloadsTakeTimeFromTheHostAlone) {
  constexpr double kBytes = kTensorBytes / kTokens * kFewTokens;
  PlanRequest request = ShortOne();
  request.rates.upload.bytes = 1e9;
  request.rates.download.bytes = 2e9;
  EXPECT_NEAR(Seconds(request), kBytes * (3 / 1e9 + 1 / 2e9) / 2, 1e-9);
  EXPECT_NEAR(Seconds(request, 1), kBytes * (3 / 1e9 + 1 / 2e9), 1e-9);
  request.inputs = InputsLie::kWherePlanned;
  EXPECT_NEAR(Seconds(request), 0, 1e-6);
}

// The plan of heads wants half of the heads of all columns, of which half lie
// on the other device.
TEST(PredictTest, WhatLiesByRangesIsPulled) {
  PlanRequest request = Ideal();
  request.inputs = InputsLie::kByRanges;
  request.rates.pull.bytes = 1e9;
  EXPECT_NEAR(Seconds(request), 2 * kTensorBytes / 4 / 1e9, 1e-6);
  EXPECT_EQ(MakePlan(request, 2).cost.devices[1].pulled_bytes,
            2 * kTensorBytes / 4);
  // A device's own part is copied within its memory.
  request.rates.pull.bytes = 1e30;
  request.rates.memory_bytes = 1e9;
  EXPECT_NEAR(Seconds(request),
              (2 * 2 * kTensorBytes / 4 + 2 * kTensorBytes / 2) / 1e9, 0.25);
  // Nothing moves where all of a device's range is what the plan wants there.
  request.rates.pull.bytes = 1e9;
  request.kind = PlanKind::kKv;
  request.sequences[0].sees.rows = 1;
  for (const Step& step : MakePlan(request, 2).steps) {
    if (const auto* pull = std::get_if<Pull>(&step.what)) {
      for (const Pull::Item& item : pull->items) {
        EXPECT_EQ(item.slice.tokens.count, 1);  // O and LSE of the row
      }
    }
  }
}

TEST(PredictTest, ComputingTakesWholeTilesOfWholeProcessors) {
  PlanRequest request = Ideal();
  request.inputs = InputsLie::kWherePlanned;
  request.rates.forward.flops = 1e12;
  const double flops = FlopsOf(request, request.sequences[0]);
  EXPECT_NEAR(Seconds(request, 1), flops / 1e12, 1e-9 * flops);
  // 512 tiles: on 512 processors one each, on 300 two.
  request.rates.processors = 512;
  EXPECT_NEAR(Seconds(request, 1), flops / 1e12, 1e-9);
  request.rates.processors = 300;
  EXPECT_NEAR(Seconds(request, 1), 2 * flops / 512 * 300 / 1e12, 1e-9);
  // And a tile takes its own time.
  request.rates.forward.tile_seconds = 0.5;
  EXPECT_NEAR(Seconds(request, 1), 2 * flops / 512 * 300 / 1e12 + 1, 1e-9);
}

// Half of the pairs, and half of each tile on the diagonal.
TEST(PredictTest, MaskedPairsOfVisitedTilesTakeTimeToo) {
  PlanRequest request = Ideal();
  request.inputs = InputsLie::kWherePlanned;
  request.rates.forward.flops = 1e12;
  const double full = Seconds(request, 1);
  request.sequences[0].sees.right = 0;
  constexpr double kTiles = kTokens / 128.0;
  EXPECT_NEAR(Seconds(request, 1),
              full * (kTiles * (kTiles + 1) / 2) / (kTiles * kTiles),
              1e-3 * full);
}

TEST(PredictTest, DeterministicBackwardAndF32TakeLonger) {
  PlanRequest request = Backward(Ideal());
  request.inputs = InputsLie::kWherePlanned;
  request.rates.backward.flops = 1e12;
  const double once = Seconds(request);
  request.rates.deterministic = 1.5;
  EXPECT_EQ(Seconds(request), once);
  request.deterministic = true;
  EXPECT_NEAR(Seconds(request), 1.5 * once, 1e-6 * once);
  request.deterministic = false;
  request.rates.f32 = 3;
  request.problems[0].inputs[TensorId::kQ] = DType::kF32;
  EXPECT_NEAR(Seconds(request), 3 * once, 1e-6 * once);
}

// The first device has the first quarter of the columns, which nearly all rows
// see, and the last, which few do: 8 tiles each. On 9 processors the last long
// one begins when the longest but one of the short ones ends.
TEST(PredictTest, RunsThatLieApartHaveTilesOfOtherLengths) {
  PlanRequest request = Backward(Causal(PlanKind::kGather, kTokens, 1));
  request.inputs = InputsLie::kWherePlanned;
  request.deterministic = true;
  request.sections = 1;
  request.rates = {};
  request.rates.processors = 9;
  request.rates.backward.flops = 1e12;
  request.rates.memory_bytes = 1e30;
  const Plan plan = MakePlan(request, 2);
  ASSERT_EQ(plan.kind, PlanKind::kGather);
  for (const Step& step : plan.steps) {
    const auto* compute = std::get_if<Compute>(&step.what);
    if (compute == nullptr || step.device != 0) continue;
    ASSERT_EQ(compute->parts.size(), 1);
    ASSERT_EQ(compute->parts[0].columns.size(), 2);
    const double row = 128 * 5 * 256 / (1e12 / 9);
    const double last_begins = row * kTokens / 4 * 7 / 8;
    EXPECT_NEAR(SecondsOf(request, plan, *compute).until_done,
                last_begins + row * kTokens, row * 128);
    return;
  }
  FAIL() << "the first device computes nothing";
}

// Sections are uploaded, computed and downloaded beside each other. Of heads
// that is all there is to bring; where tokens are shared out, Q comes first.
TEST(PredictTest, SectionsComeWhileOthersAreComputed) {
  for (const auto& [kind, most] :
       {std::pair{PlanKind::kHeads, 0.7}, std::pair{PlanKind::kGather, 0.9}}) {
    PlanRequest request = Ideal();
    request.kind = kind;
    request.sections = 4;
    request.rates.forward.flops = 2e12;
    const double computing = Seconds(request);
    request.rates.upload.bytes = 1e9;
    const double uploads = kTensorBytes * 3 / 2 / 1e9;
    EXPECT_GT(Seconds(request), std::max(uploads, computing));
    EXPECT_LT(Seconds(request), most * (uploads + computing));
  }
}

// A stripe's tokens lie apart on the host: copies of such take longer, one
// after the other. Those of a run of tokens do not, nor does a pull of what
// lies together where it comes from.
TEST(PredictTest, CopiesOfTokensThatLieApartTakeTheLink) {
  PlanRequest request = ShortOne();
  request.rates.apart_seconds = 1;
  request.kind = PlanKind::kRing;
  EXPECT_NEAR(Seconds(request), 0, 1e-6);
  request.kind = PlanKind::kStriped;
  // Q, K and V, and O.
  EXPECT_NEAR(Seconds(request), 4, 1e-6);
  // K and V are pulled from the ranges of tokens that they lie in.
  request.inputs = InputsLie::kByRanges;
  EXPECT_GE(Seconds(request), 2);
}

// Each block of columns adds to one row's dQ in its turn. The next head begins
// before this one ends, but behind the last none does.
TEST(PredictTest, TurnsOfTheLastHeadEndLast) {
  constexpr double kBlocks = 1000, kTurn = 1e-3;
  const auto seconds = [&](int64_t heads) {
    PlanRequest request = Backward(Ideal(heads));
    request.sequences[0].sees.rows = 1;
    request.sequences[0].sees.columns = static_cast<int64_t>(128 * kBlocks);
    request.deterministic = true;
    request.inputs = InputsLie::kWherePlanned;
    request.rates.processors = 125;
    request.rates.turn_seconds = kTurn;
    return Seconds(request, 1);
  };
  // 1 + 0.8 * 125 / 1000 heads are under way at once.
  const double head = kBlocks * kTurn;
  EXPECT_NEAR(seconds(1), head, 1e-3);
  EXPECT_NEAR(seconds(2), 2 * head / 1.1, 1e-3);
  EXPECT_NEAR(seconds(8), 8 * head / 1.1, 1e-3);
}

TEST(PredictTest, TheHostTakesTimeForEachStep) {
  PlanRequest request = ShortOne();
  request.rates.team_seconds = 1;
  EXPECT_NEAR(Seconds(request), 1, 1e-6);
  request.rates.step_seconds = 10;
  // Three uploads, a launch and a download on each device.
  EXPECT_NEAR(Seconds(request), 51, 1e-6);
}

}  // namespace
}  // namespace attnd::plan
