#include <cstdint>
#include <tuple>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/gather.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/shares.h"
#include "kernels/plan/validate.h"
#include "tests/kernels/plan/causal_request.h"
#include "tests/kernels/plan/gpu_rates.h"
#include "tests/kernels/plan/random_request.h"

namespace attnd::plan {
namespace {

using ::testing::HasSubstr;

constexpr int kDeviceCounts[] = {1, 2, 3, 4, 7, 8};

TEST(PlanTest, IsValidForAnyShapesAndDevices) {
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    const PlanRequest request = RandomRequest(seed);
    for (const int devices : kDeviceCounts) {
      const Plan plan = MakePlan(request, devices);
      const absl::Status status = Validate(request, plan);
      ASSERT_TRUE(status.ok()) << status << "\nseed " << seed << "\n"
                               << Explain(request, plan);
    }
  }
}

TEST(PlanTest, IsTheSameEachTime) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const PlanRequest request = RandomRequest(seed);
    EXPECT_EQ(Explain(request, MakePlan(request, 4)),
              Explain(request, MakePlan(request, 4)));
  }
}

double Imbalance(const Plan& plan) {
  double sum = 0, most = 0;
  for (const PlanCost::Device& device : plan.cost.devices) {
    sum += device.flops;
    most = std::max(most, device.flops);
  }
  return most * plan.devices / sum;
}

TEST(PlanTest, HeadsThatDivideStayWhole) {
  const PlanRequest request = Causal(PlanKind::kHeads, 16384, 16);
  const Plan plan = MakePlan(request, 2);
  EXPECT_EQ(plan.cost.devices[0].pulled_bytes, 0);
  EXPECT_EQ(plan.cost.devices[0].flops, plan.cost.devices[1].flops);
}

// From the host heads come in sections, so that the first are computed before
// the last are there: each once, and none of them cut for it.
TEST(PlanTest, HeadsComeFromTheHostInSections) {
  for (const auto& [inputs, tokens, sections] :
       {std::tuple{InputsLie::kOnHost, 16384, 4},
        std::tuple{InputsLie::kOnHost, 128, 1},
        std::tuple{InputsLie::kWherePlanned, 16384, 1}}) {
    PlanRequest request = Causal(PlanKind::kHeads, tokens, 16);
    request.inputs = inputs;
    const Plan plan = MakePlan(request, 2);
    EXPECT_EQ(plan.sections, sections);
    std::vector<int> computes(2);
    int64_t heads = 0;
    for (const Step& step : plan.steps) {
      const auto* compute = std::get_if<Compute>(&step.what);
      if (compute == nullptr) continue;
      ++computes[step.device];
      ASSERT_EQ(compute->parts.size(), 1);
      EXPECT_EQ(compute->parts[0].rows.count, tokens);
      heads += compute->parts[0].kv_heads;
      // What the section needs, and no other's.
      EXPECT_EQ(step.after.size(), 3);
    }
    EXPECT_EQ(heads, 16);
    EXPECT_EQ(computes, std::vector<int>(2, sections));
  }
}

// Some rows of decode are all copies: their heads come in longer runs.
TEST(PlanTest, HeadsThatAreMostlyCopiedComeInFewerSections) {
  for (const auto& [rows, sections] :
       {std::pair{int64_t{16}, 2}, std::pair{int64_t{65536}, 4}}) {
    PlanRequest request = Causal(PlanKind::kHeads, 65536, 16);
    request.sequences[0].sees.rows = rows;
    request.sequences[0].sees.right = -1;
    request.inputs = InputsLie::kOnHost;
    request.rates = RoundGpuRates();
    EXPECT_EQ(MakePlan(request, 2).sections, sections) << rows;
  }
}

TEST(PlanTest, DevicesComputeAsMuch) {
  for (const int devices : kDeviceCounts) {
    for (const PlanKind kind : {PlanKind::kHeads, PlanKind::kGather,
                                PlanKind::kStriped, PlanKind::kZigzag}) {
      const PlanRequest request = Causal(kind, 65536, 5);
      EXPECT_LT(Imbalance(MakePlan(request, devices)), 1.03)
          << devices << " " << PlanName(kind);
    }
  }
}

TEST(PlanTest, GatherFetchesWhatRowsSeeAndNoMore) {
  // In zigzag on two devices the first one, whose last rows see all, lacks the
  // half in the middle; the other lacks the first quarter.
  const Plan plan = MakePlan(Causal(PlanKind::kGather, 16384, 16), 2);
  const int64_t quarter = int64_t{16384} / 4 * 16 * 2 * 128 * 2;
  EXPECT_EQ(plan.cost.devices[0].pulled_bytes, 2 * quarter);
  EXPECT_EQ(plan.cost.devices[1].pulled_bytes, quarter);
}

TEST(PlanTest, AWindowIsFetchedFromTheNeighbour) {
  PlanRequest request = Causal(PlanKind::kGather, 131072, 16);
  request.sequences[0].sees.left = 4096;
  const Plan plan = MakePlan(request, 2);
  const double need = 4096.0 * 16 * 2 * 128 * 2;
  const auto pulled = [&](int device) {
    return static_cast<double>(plan.cost.devices[device].pulled_bytes);
  };
  EXPECT_EQ(std::min(pulled(0), pulled(1)), 0);
  EXPECT_LE(std::max(pulled(0), pulled(1)), 1.1 * need);
  EXPECT_GE(std::max(pulled(0), pulled(1)), need);
}

TEST(PlanTest, TheFirstSectionIsSmallWhereComputingHidesTheRest) {
  const auto gathered = [](int64_t tokens) {
    PlanRequest gather = Causal(PlanKind::kGather, tokens, 16);
    gather.inputs = InputsLie::kWherePlanned;
    gather.rates = RoundGpuRates();
    return gather;
  };
  PlanRequest request = gathered(16384);
  const Sections short_ones = ChooseGathering(request, 2).sections;
  EXPECT_LE(short_ones.front(), 4.0 / 16);
  EXPECT_LE(short_ones.size(), 3);
  request = gathered(131072);
  const Sections long_ones = ChooseGathering(request, 2).sections;
  EXPECT_EQ(long_ones.front(), 1.0 / 16);
  EXPECT_EQ(long_ones.size(), 2);
  // No more than asked for, and no more than there may be.
  request.sections = 4;
  EXPECT_EQ(ChooseGathering(request, 2).sections.size(), 4);
  request.sections = 100;
  EXPECT_EQ(ChooseGathering(request, 2).sections.size(), kMostSections);
  // One head cannot be divided.
  EXPECT_EQ(ChooseGathering(Causal(PlanKind::kGather, 131072, 1), 2).sections,
            Sections{1.0});
}

// Its backward, with `group` query heads a K/V head.
PlanRequest CausalBackward(int64_t tokens, int64_t kv_heads, int64_t group) {
  PlanRequest request = Causal(PlanKind::kGather, tokens, kv_heads);
  request.op = Op::kBackward;
  ProblemShape& shape = request.problems[0];
  shape.q_heads = kv_heads * group;
  for (const TensorId id : {TensorId::kDO, TensorId::kO}) {
    shape.inputs[id] = DType::kBF16;
  }
  shape.inputs[TensorId::kLse] = DType::kF32;
  shape.outputs = {};
  for (const TensorId id : {TensorId::kDQ, TensorId::kDK, TensorId::kDV}) {
    shape.outputs[id] = DType::kBF16;
  }
  request.inputs = InputsLie::kWherePlanned;
  request.rates = RoundGpuRates();
  return request;
}

TEST(PlanTest, BackwardHasFewSections) {
  EXPECT_EQ(ChooseGathering(CausalBackward(16384, 16, 1), 2).sections,
            (Sections{0.5, 1.0}));
}

TEST(PlanTest, BackwardFetchesRowsOrColumnsWhicheverIsLess) {
  const auto what = [](int64_t group) {
    return ChooseGathering(CausalBackward(16384, 4, group), 2).what;
  };
  EXPECT_EQ(what(1), Gathered::kRows);
  EXPECT_EQ(what(4), Gathered::kColumns);
  EXPECT_EQ(what(8), Gathered::kColumns);
  PlanRequest request = CausalBackward(16384, 4, 8);
  const Plan columns = MakePlan(request, 2);
  request.gathered = Gathered::kRows;
  const Plan rows = MakePlan(request, 2);
  EXPECT_LT(4 * columns.cost.devices[0].pulled_bytes,
            rows.cost.devices[0].pulled_bytes);
  // Half of K and V, whose other half it has; and of dK and dV the term of the
  // other device's rows for its first quarter, as they do not see the last.
  const int64_t quarter = int64_t{16384} / 4 * 4 * 2 * 128;
  EXPECT_EQ(columns.cost.devices[0].pulled_bytes,
            quarter * (2 * 2 + int64_t{sizeof(float)}));
}

TEST(PlanTest, GatherOfTooManySequencesIsHeads) {
  PlanRequest request = Causal(PlanKind::kGather, 16, 2);
  request.sequences.resize(kMostGathered, request.sequences[0]);
  EXPECT_EQ(MakePlan(request, 2).kind, PlanKind::kGather);
  request.sequences.push_back(request.sequences[0]);
  const Plan plan = MakePlan(request, 2);
  EXPECT_EQ(plan.kind, PlanKind::kHeads);
  EXPECT_THAT(plan.why, HasSubstr("gather takes at most 1024 sequences"));
}

TEST(PlanTest, SayWhatTheyDo) {
  PlanRequest request = Causal(PlanKind::kGather, 16384, 16);
  request.sections = 1;
  const std::string text = Explain(request, MakePlan(request, 2));
  EXPECT_THAT(text, HasSubstr("gather over 2 devices"));
  EXPECT_THAT(text,
              HasSubstr("pull k[0 heads 0..16 tokens 4096..12288], v[0 "));
}

// A plan with one thing wrong in it, and what Validate says.
TEST(ValidateTest, FindsWhatIsWrong) {
  const PlanRequest request = Causal(PlanKind::kGather, 2048, 4);
  const Plan good = MakePlan(request, 2);
  ASSERT_TRUE(Validate(request, good).ok());
  const auto says = [&](const Plan& plan) {
    return std::string(Validate(request, plan).message());
  };
  for (size_t i = 0; i < good.steps.size(); ++i) {
    Plan plan = good;
    plan.steps[i].after.clear();
    if (good.steps[i].after.empty()) continue;
    EXPECT_THAT(says(plan), HasSubstr("reads what need not be there")) << i;
  }
  for (size_t i = 0; i < good.steps.size(); ++i) {
    Plan plan = good;
    plan.steps[i].after.push_back(static_cast<int>(i));
    EXPECT_THAT(says(plan), HasSubstr("waits for a later step"));
    plan = good;
    plan.steps[i].device = 1 - plan.steps[i].device;
    EXPECT_FALSE(Validate(request, plan).ok());
    plan = good;
    // Twice: it writes what was written, or sends it again.
    plan.steps.push_back(good.steps[i]);
    EXPECT_FALSE(Validate(request, plan).ok()) << i;
    plan = good;
    if (auto* compute = std::get_if<Compute>(&plan.steps[i].what)) {
      compute->parts.front().columns.front().run.count -= 128;
      EXPECT_FALSE(Validate(request, plan).ok());
      plan = good;
      std::get<Compute>(plan.steps[i].what).parts.pop_back();
      EXPECT_FALSE(Validate(request, plan).ok());
    }
    if (auto* pull = std::get_if<Pull>(&plan.steps[i].what)) {
      pull->items.front().slice.tokens.count -= 1;
      EXPECT_FALSE(Validate(request, plan).ok());
    }
    if (std::holds_alternative<Download>(plan.steps[i].what)) {
      plan.steps.erase(plan.steps.begin() + static_cast<int64_t>(i));
      EXPECT_THAT(says(plan), HasSubstr("part of o is not sent"));
    }
  }
  Plan plan = good;
  plan.cost.devices[0].pulled_bytes += 1;
  EXPECT_THAT(says(plan), HasSubstr("costs are wrong"));
}

TEST(CutsTest, PartsAreWholeUnitsAndCoverAll) {
  for (int64_t tokens = 0; tokens < 60; ++tokens) {
    for (int64_t size = 1; size < 9; ++size) {
      for (int64_t least = 1; least < 5; ++least) {
        for (const int shares : {1, 2, 3, 7}) {
          for (const auto& cut : {CutEvenly(tokens, shares, {size, least}),
                                  CutZigzag(tokens, shares, {size, least})}) {
            int64_t total = 0;
            for (const Runs& runs : cut) {
              for (const plan::Run& run : runs) {
                total += run.count;
                EXPECT_EQ(run.first % size, 0);
                EXPECT_TRUE(run.end() % size == 0 || run.end() == tokens);
                EXPECT_GE(run.count, std::min(least, tokens));
              }
            }
            EXPECT_EQ(total, tokens);
          }
        }
      }
    }
  }
}

TEST(CutsTest, WidenKeepsToTheUnit) {
  const CutUnit unit{1, 1, 16, 40};
  EXPECT_EQ(Widen({20, 30}, 100, unit), (plan::Run{16, 48}));
  EXPECT_EQ(Widen({96, 4}, 100, unit), (plan::Run{48, 52}));
  EXPECT_EQ(Widen({5, 1}, 20, unit), (plan::Run{0, 20}));
  EXPECT_EQ(Widen({}, 20, unit), (plan::Run{}));
}

}  // namespace
}  // namespace attnd::plan
