// Plans in which columns go round: who has which tokens, what travels, and how
// much memory that takes.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/predict.h"
#include "tests/kernels/plan/causal_request.h"

namespace attnd::plan {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHeads = 2;
// K and V of a token, bf16.
constexpr int64_t kTokenBytes = kHeads * 2 * 128 * 2;

PlanRequest Full(PlanKind kind, int64_t tokens) {
  PlanRequest request = Causal(kind, tokens, kHeads);
  request.sequences[0].sees.right = -1;
  return request;
}

TEST(RingTest, ThePlainRingsLastDeviceHasTwiceItsDue) {
  for (const int n : {2, 3, 4, 7, 8}) {
    const Plan plan = MakePlan(Causal(PlanKind::kRing, 65536, 2), n);
    double sum = 0;
    for (const PlanCost::Device& device : plan.cost.devices) {
      sum += device.flops;
    }
    const double due = sum / n, most = plan.cost.devices.back().flops;
    EXPECT_NEAR(due / most, static_cast<double>(n) / (2 * n - 1), 1e-3);
    for (const PlanCost::Device& device : plan.cost.devices) {
      EXPECT_LE(device.flops, most);
    }
  }
}

TEST(RingTest, MemoryIsForTwoBlocksAndTwoStatesWhateverTheDevices) {
  constexpr int64_t kOwn = 1024;  // tokens a device
  constexpr int64_t kRows = kOwn * kHeads;
  for (const PlanKind kind : kRingKinds) {
    for (const int n : {3, 4, 8}) {
      const Plan plan = MakePlan(Full(kind, kOwn * n), n);
      for (const PlanCost::Device& device : plan.cost.devices) {
        EXPECT_EQ(device.memory_bytes, kRows * 128 * 2 +          // Q
                                           2 * kRows * 128 * 4 +  // O
                                           2 * kRows * 4 +        // LSE
                                           2 * kOwn * kTokenBytes)
            << PlanName(kind) << n;
      }
    }
  }
  // With two devices the second state is O itself.
  const Plan two = MakePlan(Full(PlanKind::kRing, 2 * kOwn), 2);
  EXPECT_EQ(
      two.cost.devices[0].memory_bytes,
      2 * kRows * 128 * 2 + kRows * (128 + 1) * 4 + 2 * kOwn * kTokenBytes);
}

TEST(RingTest, AllBlocksGoAllTheWayWhereRowsSeeAll) {
  for (const PlanKind kind : kRingKinds) {
    for (const int n : {1, 2, 3, 8}) {
      const Plan plan = MakePlan(Full(kind, int64_t{1024} * n), n);
      for (const PlanCost::Device& device : plan.cost.devices) {
        EXPECT_EQ(device.pulled_bytes, (n - 1) * 1024 * kTokenBytes);
      }
    }
  }
}

// Pulled bytes by device, in tokens, of 1024 tokens a device.
std::vector<int64_t> PulledTokens(PlanRequest request, int n) {
  std::vector<int64_t> tokens;
  for (const PlanCost::Device& device : MakePlan(request, n).cost.devices) {
    EXPECT_EQ(device.pulled_bytes % kTokenBytes, 0);
    tokens.push_back(device.pulled_bytes / kTokenBytes);
  }
  return tokens;
}

TEST(RingTest, ABlockGoesNoFurtherThanItIsSeen) {
  const auto pulled = [](PlanKind kind) {
    return PulledTokens(Causal(kind, 4096, kHeads), 4);
  };
  // Block c is seen by devices c and up.
  EXPECT_EQ(pulled(PlanKind::kRing),
            (std::vector<int64_t>{0, 1024, 2 * 1024, 3 * 1024}));
  // The last token of a block is not seen by devices before its first one, to
  // which it comes last.
  EXPECT_EQ(pulled(PlanKind::kStriped),
            (std::vector<int64_t>{3 * 1024 - 3, 3 * 1024 - 2, 3 * 1024 - 1,
                                  3 * 1024}));
  // All have rows near the end, which see every first half. Block c's second
  // half is seen by devices up to c: that of block 0 by none but its own.
  EXPECT_EQ(pulled(PlanKind::kZigzag),
            (std::vector<int64_t>{6 * 512, 5 * 512, 5 * 512, 5 * 512}));
}

TEST(RingTest, AWindowComesFromTheNeighbour) {
  PlanRequest request = Causal(PlanKind::kRing, 4096, kHeads);
  request.sequences[0].sees.left = 100;
  EXPECT_EQ(PulledTokens(request, 4), (std::vector<int64_t>{0, 100, 100, 100}));
}

TEST(RingTest, AStripeIsEveryNthToken) {
  const PlanRequest request = Causal(PlanKind::kStriped, 64, 1);
  const Plan plan = MakePlan(request, 8);
  int uploads = 0;
  for (const Step& step : plan.steps) {
    const auto* upload = std::get_if<Upload>(&step.what);
    if (upload == nullptr) continue;
    ++uploads;
    EXPECT_EQ(upload->slice.tokens, (plan::Run{step.device, 8, 8}));
  }
  EXPECT_EQ(uploads, 3 * 8);
  const std::string text = Explain(request, plan);
  EXPECT_THAT(text, HasSubstr("striped over 8 devices"));
  EXPECT_THAT(text, HasSubstr("@1 upload q[0 heads 0..1 tokens 1..58 by 8]"));
  EXPECT_THAT(text, HasSubstr("rows 1..58 by 8 columns 0..57 by 8 merged"));
}

TEST(RingTest, ABlockIsPulledBeforeTheOneBeforeItIsComputed) {
  constexpr int kDevices = 4;
  for (const PlanKind kind : kRingKinds) {
    int pulls = 0, computes = 0;
    for (const Step& step : MakePlan(Full(kind, 4096), kDevices).steps) {
      if (std::holds_alternative<Compute>(step.what)) ++computes;
      if (!std::holds_alternative<Pull>(step.what)) continue;
      // Steps wait for earlier ones alone: all devices' pulls of the next block
      // for nothing that is computed over this one.
      EXPECT_EQ(computes, pulls++ / kDevices * kDevices) << PlanName(kind);
    }
    EXPECT_EQ(pulls, (kDevices - 1) * kDevices);
  }
}

TEST(RingTest, TakesAsLongAsTheSlowerOfPullingAndComputing) {
  PlanRequest request = Full(PlanKind::kRing, 4096);
  request.inputs = InputsLie::kWherePlanned;
  request.rates.memory_bytes = 1e30;
  const Plan plan = MakePlan(request, 4);
  KernelRatesOf(request).flops = 1e18;
  request.rates.pull.bytes = 1e9;
  const double pulls = 3.0 * 1024 * kTokenBytes / 1e9;
  EXPECT_NEAR(absl::ToDoubleSeconds(Predict(request, plan)), pulls,
              1e-3 * pulls);
  KernelRatesOf(request).flops = 1e9;
  request.rates.pull.bytes = 1e18;
  const double computes = plan.cost.devices[0].flops / 1e9;
  EXPECT_NEAR(absl::ToDoubleSeconds(Predict(request, plan)), computes,
              1e-3 * computes);
  // As long as a block takes either way: the first one is there already.
  request.rates.pull.bytes = 1024 * kTokenBytes / (computes / 4);
  EXPECT_NEAR(absl::ToDoubleSeconds(Predict(request, plan)), computes,
              1e-3 * computes);
}

// The largest results that a request can ask for and that are not rounded out
// of memory of their own.
void WantFloats(PlanRequest& request) {
  PerTensor<std::optional<DType>>& wanted = request.problems[0].outputs;
  if (request.op == Op::kForward) {
    wanted[TensorId::kO] = wanted[TensorId::kLse] = DType::kF32;
  } else {
    wanted[TensorId::kDK] = wanted[TensorId::kDV] = DType::kF32;
    request.problems[0].inputs[TensorId::kDLse] = DType::kF32;
  }
}

TEST(RingTest, AdmissionChargesWhatLongSequencesTake) {
  // So many that `heads`, as which such a request may run too, takes less.
  constexpr int64_t kManyHeads = 64;
  const auto check = [](PlanRequest request, int n) {
    WantFloats(request);
    const int64_t tokens = request.sequences[0].sees.rows;
    KvSegment segment;
    segment.len = tokens;
    Problem problem;
    problem.batch = 1;
    problem.q_len = tokens;
    problem.q_heads = problem.kv_heads = kManyHeads;
    problem.head_dim = problem.value_dim = 128;
    problem.q.dtype = DType::kBF16;
    problem.kv = {&segment, 1};
    double bytes = 0;
    for (const PlanCost::Device& device : MakePlan(request, n).cost.devices) {
      bytes += static_cast<double>(device.memory_bytes);
    }
    const double most = MostBufferBytes(request.op, problem, request.kind, n);
    EXPECT_LE(bytes, most) << PlanName(request.kind) << n << " " << tokens;
    EXPECT_LE(most, 1.01 * bytes)
        << PlanName(request.kind) << n << " " << tokens;
  };
  for (const PlanKind kind : kRingKinds) {
    for (const int n : {2, 3, 8}) {
      for (const int64_t tokens : {8192, 8193, 8207}) {
        PlanRequest request = Causal(kind, tokens, kManyHeads);
        request.sequences[0].sees.right = -1;
        check(request, n);
        if (n > 2) check(Backward(request), n);
      }
    }
  }
}

TEST(RingTest, ManySequencesRunOtherwiseAndSaySo) {
  for (const PlanKind kind : kRingKinds) {
    for (const bool backward : {false, true}) {
      PlanRequest request = Causal(kind, 16, kHeads);
      if (backward) request = Backward(request);
      request.sequences.resize(kMostGathered, request.sequences[0]);
      EXPECT_EQ(MakePlan(request, 2).kind, kind);
      request.sequences.push_back(request.sequences[0]);
      const Plan many = MakePlan(request, 2);
      EXPECT_EQ(many.kind, PlanKind::kHeads);
      EXPECT_THAT(many.why, HasSubstr("takes at most 1024 sequences"));
    }
  }
}

}  // namespace
}  // namespace attnd::plan
