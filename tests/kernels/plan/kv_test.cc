// Plans in which devices have all rows and share the columns out: who has what,
// what travels, and who puts it together.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/predict.h"
#include "kernels/plan/validate.h"
#include "tests/kernels/plan/causal_request.h"

namespace attnd::plan {
namespace {

using ::testing::HasSubstr;

constexpr int kDevices = 4;
constexpr int64_t kHeads = 2, kColumns = 4096, kTile = 128;
// O and LSE of a row, f32.
constexpr int64_t kStateBytes = kHeads * (128 + 1) * 4;
// K and V of a token, bf16.
constexpr int64_t kTokenBytes = kHeads * 2 * 128 * 2;

// Sequences of `rows` last rows each, over columns that all of them see.
PlanRequest Decode(int64_t rows, const std::vector<int64_t>& columns) {
  PlanRequest request = Causal(PlanKind::kKv, 1, kHeads);
  SequenceShape& first = request.sequences[0];
  first.sees.rows = rows;
  first.sees.right = -1;
  request.sequences.resize(columns.size(), first);
  for (size_t i = 0; i < columns.size(); ++i) {
    request.sequences[i].b = static_cast<int64_t>(i);
    request.sequences[i].sees.columns = columns[i];
    request.sequences[i].sees.q_start = columns[i] - rows;
  }
  return request;
}

// That is valid.
Plan PlanOf(const PlanRequest& request, int devices = kDevices) {
  Plan plan = MakePlan(request, devices);
  EXPECT_TRUE(Validate(request, plan).ok())
      << Validate(request, plan) << Explain(request, plan);
  EXPECT_EQ(plan.kind, PlanKind::kKv);
  return plan;
}

// The devices that have steps of a kind, in the order of steps.
template <class What>
std::vector<int> DevicesOf(const Plan& plan) {
  std::vector<int> devices;
  for (const Step& step : plan.steps) {
    if (std::holds_alternative<What>(step.what)) devices.push_back(step.device);
  }
  return devices;
}

TEST(KvTest, ColumnsAreSharedOutAndTheFirstDeviceMerges) {
  for (const int64_t rows : {1, 3, 16}) {
    const Plan plan = PlanOf(Decode(rows, {kColumns}));
    EXPECT_EQ(DevicesOf<Compute>(plan), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(DevicesOf<Merge>(plan), std::vector<int>{0});
    for (int device = 0; device < kDevices; ++device) {
      const PlanCost::Device& cost = plan.cost.devices[device];
      EXPECT_EQ(cost.flops, plan.cost.devices[0].flops);
      EXPECT_EQ(cost.uploaded_bytes,
                rows * kHeads * 128 * 2 + kColumns / kDevices * kTokenBytes);
      EXPECT_EQ(cost.pulled_bytes, device == 0 ? 3 * rows * kStateBytes : 0);
    }
  }
}

TEST(KvTest, OneDeviceMergesNothing) {
  const Plan plan = PlanOf(Decode(2, {kColumns, 5, 0}), 1);
  EXPECT_EQ(plan.cost.devices[0].pulled_bytes, 0);
  // But what has no columns at all has results, too.
  ASSERT_EQ(DevicesOf<Merge>(plan).size(), 1);
  for (const Step& step : plan.steps) {
    if (const auto* merge = std::get_if<Merge>(&step.what)) {
      EXPECT_TRUE(merge->terms.empty());
    }
  }
}

TEST(KvTest, ManySequencesAreMergedOnAllDevices) {
  const Plan plan = PlanOf(Decode(1, std::vector<int64_t>(8, kColumns)));
  std::vector<int> merges = DevicesOf<Merge>(plan);
  EXPECT_EQ(merges, (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}));
  // From each peer all at once.
  EXPECT_EQ(DevicesOf<Pull>(plan).size(), kDevices * (kDevices - 1));
  for (const PlanCost::Device& device : plan.cost.devices) {
    EXPECT_EQ(device.pulled_bytes, 2 * 3 * kStateBytes);
  }
}

TEST(KvTest, ShortSequencesLieOnDifferentDevicesAndAreNotMerged) {
  const Plan plan = PlanOf(Decode(1, {kTile, 7, 1, 100}));
  EXPECT_EQ(DevicesOf<Compute>(plan), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(DevicesOf<Pull>(plan).empty());
  EXPECT_TRUE(DevicesOf<Merge>(plan).empty());
}

TEST(KvTest, TermsAreInTheOrderOfColumnsWhereverTheyLie) {
  const PlanRequest request = Decode(1, std::vector<int64_t>(5, kColumns));
  const Plan plan = PlanOf(request);
  int merges = 0;
  for (const Step& step : plan.steps) {
    const auto* merge = std::get_if<Merge>(&step.what);
    if (merge == nullptr) continue;
    ++merges;
    // Where each term was computed, and over what.
    std::vector<int64_t> firsts;
    for (const State& term : merge->terms) {
      int buffer = term.lse;
      for (const Step& other : plan.steps) {
        const auto* pull = std::get_if<Pull>(&other.what);
        if (pull == nullptr) continue;
        for (const Pull::Item& item : pull->items) {
          if (item.to == term.lse) buffer = item.from;
        }
      }
      for (const Step& other : plan.steps) {
        const auto* compute = std::get_if<Compute>(&other.what);
        if (compute == nullptr) continue;
        for (const Part& part : compute->parts) {
          if (part.buffers[TensorId::kLse] == buffer) {
            firsts.push_back(part.columns.front().run.first);
          }
        }
      }
    }
    EXPECT_EQ(firsts, (std::vector<int64_t>{0, 1024, 2048, 3072}));
  }
  EXPECT_EQ(merges, 5);
}

TEST(KvTest, ADeviceWhoseColumnsNoRowSeesHasNoSteps) {
  PlanRequest request = Decode(2, {kColumns});
  request.sequences[0].sees.left = 1500;  // of the last rows
  request.sequences[0].sees.right = 0;
  const Plan plan = PlanOf(request);
  for (const Step& step : plan.steps) EXPECT_GE(step.device, 2);
  // Nor is more brought than is seen.
  EXPECT_EQ(plan.cost.devices[2].uploaded_bytes,
            2 * kHeads * 128 * 2 + (1501 + 1 - 1024) * kTokenBytes);
  EXPECT_EQ(DevicesOf<Merge>(plan), std::vector<int>{2});
}

TEST(KvTest, LseAloneIsMergedAlone) {
  PlanRequest request = Decode(1, {kColumns});
  request.problems[0].outputs = {};
  request.problems[0].outputs[TensorId::kLse] = DType::kF32;
  const Plan plan = PlanOf(request);
  EXPECT_EQ(plan.cost.devices[0].pulled_bytes, 3 * kHeads * 4);
}

TEST(KvTest, BackwardSumsQueriesGradientsAlone) {
  const Plan plan = PlanOf(Backward(Decode(3, {kColumns})));
  EXPECT_EQ(DevicesOf<Sum>(plan), std::vector<int>{0});
  EXPECT_TRUE(DevicesOf<Merge>(plan).empty());
  EXPECT_EQ(plan.cost.devices[0].pulled_bytes, 3 * 3 * kHeads * 128 * 4);
  EXPECT_EQ(plan.cost.devices[1].pulled_bytes, 0);
}

TEST(KvTest, BackwardOfColumnsThatNoRowSeesIsZero) {
  PlanRequest request = Backward(Decode(2, {kColumns}));
  request.sequences[0].sees.left = 500;
  request.sequences[0].sees.right = 0;
  const Plan plan = PlanOf(request);
  EXPECT_EQ(DevicesOf<Compute>(plan), std::vector<int>{3});
  int zeros = 0;
  for (const Step& step : plan.steps) {
    if (const auto* sum = std::get_if<Sum>(&step.what)) {
      EXPECT_TRUE(sum->terms.empty());
      ++zeros;
    }
  }
  EXPECT_EQ(zeros, 2 * 3);
}

TEST(KvTest, SaysWhatItDoes) {
  PlanRequest request = Decode(1, {kColumns, 3});
  request.problems[0].outputs[TensorId::kLse] = DType::kF32;
  const std::string text = Explain(request, PlanOf(request));
  EXPECT_THAT(text, HasSubstr("kv over 4 devices"));
  EXPECT_THAT(text, HasSubstr("columns shared out; 1 of 2 sequences merged"));
  EXPECT_THAT(text, HasSubstr("merge o[0 heads 0..2 tokens 0..1], lse[0 heads "
                              "0..2 tokens 0..1] of 4 after"));
}

TEST(KvTest, TakesAsLongAsComputingThenPullingThenMerging) {
  PlanRequest request = Decode(4, {kColumns});
  request.inputs = InputsLie::kWherePlanned;
  request.sequences[0].unit.rows = 4;  // no tile has rows that do not count
  const Plan plan = PlanOf(request);
  const auto seconds = [&] {
    return absl::ToDoubleSeconds(Predict(request, plan));
  };
  KernelRatesOf(request).flops = 1e30;
  request.rates.pull.bytes = 1e30;
  // K and V are read, and then four terms, and O and LSE written.
  const double memory = seconds();
  EXPECT_GT(memory, kColumns / kDevices * kTokenBytes / 3.6e12);
  EXPECT_LT(
      memory,
      (kColumns / kDevices * kTokenBytes + 5.0 * 4 * kStateBytes) / 3.5e12);
  request.rates.pull.bytes = 1e6;
  EXPECT_NEAR(seconds(), 3.0 * 4 * kStateBytes / 1e6 + memory, 1e-9);
  request.rates.pull.bytes = 1e30;
  KernelRatesOf(request).flops = 1e6;
  EXPECT_NEAR(seconds(), plan.cost.devices[0].flops / 1e6, 1e-3);
}

TEST(KvTest, OfTooManySequencesItIsHeads) {
  PlanRequest request =
      Decode(1, std::vector<int64_t>(kMostGathered + 1, int64_t{4}));
  const Plan plan = MakePlan(request, 2);
  EXPECT_EQ(plan.kind, PlanKind::kHeads);
  EXPECT_THAT(plan.why, HasSubstr("kv takes at most 1024 sequences"));
}

TEST(KvTest, AdmissionChargesWhatItTakes) {
  for (const int n : {1, 2, 3, 8}) {
    for (const bool is_forward : {true, false}) {
      PlanRequest request = Decode(16, {8192, 8192});
      if (!is_forward) request = Backward(request);
      PerTensor<std::optional<DType>>& wanted = request.problems[0].outputs;
      for (int t = 0; t < kTensorIds; ++t) {
        auto& dtype = wanted[static_cast<TensorId>(t)];
        if (dtype.has_value()) dtype = DType::kF32;
      }
      if (is_forward) wanted[TensorId::kLse] = DType::kF32;
      KvSegment segment;
      segment.len = 8192;
      Problem problem;
      problem.batch = 2;
      problem.q_len = 16;
      problem.q_heads = problem.kv_heads = kHeads;
      problem.head_dim = problem.value_dim = 128;
      problem.q.dtype = DType::kBF16;
      problem.kv = {&segment, 1};
      double bytes = 0;
      for (const PlanCost::Device& device : PlanOf(request, n).cost.devices) {
        bytes += static_cast<double>(device.memory_bytes);
      }
      EXPECT_LE(bytes, MostBufferBytes(request.op, problem, PlanKind::kKv, n));
    }
  }
}

// A plan with one thing wrong in it, and what Validate says.
class KvValidateTest : public ::testing::Test {
 protected:
  std::string Says() const {
    return std::string(Validate(request_, plan_).message());
  }
  template <class What>
  Step& StepOf() {
    for (Step& step : plan_.steps) {
      if (std::holds_alternative<What>(step.what)) return step;
    }
    ADD_FAILURE() << "no such step";
    return plan_.steps.back();
  }
  Merge& TheMerge() { return std::get<Merge>(StepOf<Merge>().what); }

  PlanRequest request_ = Decode(2, {kColumns});
  Plan plan_ = PlanOf(request_);
};

TEST_F(KvValidateTest, ATermThatIsLeftOutIsMissed) {
  TheMerge().terms.pop_back();
  EXPECT_THAT(Says(), HasSubstr("sends what is over some columns alone"));
}

TEST_F(KvValidateTest, ATermCountsOnce) {
  TheMerge().terms.push_back(TheMerge().terms.front());
  EXPECT_THAT(Says(), HasSubstr("counts the same pairs twice"));
}

TEST_F(KvValidateTest, OAndLseOfATermGoTogether) {
  const Plan good = plan_;
  std::swap(TheMerge().terms[0].o, TheMerge().terms[1].o);
  EXPECT_THAT(Says(), HasSubstr("O and LSE of two states"));
  plan_ = good;
  TheMerge().terms[1].o.reset();
  EXPECT_THAT(Says(), HasSubstr("merges O with no O"));
  plan_ = good;
  TheMerge().terms[1].lse = *TheMerge().terms[1].o;
  EXPECT_THAT(Says(), HasSubstr("merges what is no state"));
}

TEST_F(KvValidateTest, ATermIsNotRounded) {
  plan_.buffers[*TheMerge().terms[0].o].dtype = DType::kBF16;
  EXPECT_THAT(Says(), HasSubstr("merges what is no state"));
}

TEST_F(KvValidateTest, TermsAreWaitedFor) {
  const std::vector<int> after = StepOf<Merge>().after;
  ASSERT_EQ(after.size(), kDevices);
  for (const int other : after) {
    std::vector<int>& waits = StepOf<Merge>().after;
    waits = after;
    std::erase(waits, other);
    EXPECT_THAT(Says(), HasSubstr("reads what need not be there")) << other;
  }
}

// Only a device's own kernels' results are what a part may merge with.
TEST_F(KvValidateTest, APulledStateIsNoPartsBefore) {
  Part again = std::get<Compute>(StepOf<Compute>().what).parts.front();
  again.before = TheMerge().terms[1];
  again.buffers[TensorId::kO] = *TheMerge().o;
  again.buffers[TensorId::kLse].reset();
  StepOf<Merge>().what = Compute{{again}};
  std::vector<int>& after = plan_.steps[plan_.steps.size() - 2].after;
  for (size_t i = 0; i + 2 < plan_.steps.size(); ++i) {
    after.push_back(static_cast<int>(i));
  }
  EXPECT_THAT(Says(), HasSubstr("a state that no part has written"));
}

}  // namespace
}  // namespace attnd::plan
