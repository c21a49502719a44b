// Backward of plans in which columns go round: in which order gradients are
// added up and where they end, what travels, and how much memory that takes.

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/predict.h"
#include "kernels/plan/validate.h"
#include "tests/kernels/plan/causal_request.h"

namespace attnd::plan {
namespace {

constexpr int64_t kHeads = 2;
constexpr int64_t kOwn = 1024;  // tokens a device
// Of a token, of K and V together: bf16, and f32.
constexpr int64_t kTokenBytes = kHeads * 2 * 128 * 2;
constexpr int64_t kTokenFloats = 2 * kTokenBytes;

PlanRequest CausalBackward(PlanKind kind, int64_t tokens) {
  return Backward(Causal(kind, tokens, kHeads));
}
PlanRequest Full(PlanKind kind, int64_t tokens) {
  PlanRequest request = CausalBackward(kind, tokens);
  request.sequences[0].sees.right = -1;
  return request;
}

// By buffer, the devices that have added to what is in it, in order.
std::map<int, std::vector<int>> WhoAdds(const Plan& plan) {
  std::map<int, std::vector<int>> who;
  for (const Step& step : plan.steps) {
    if (const auto* pull = std::get_if<Pull>(&step.what)) {
      for (const Pull::Item& item : pull->items) who[item.to] = who[item.from];
    }
    if (const auto* sum = std::get_if<Sum>(&step.what)) {
      if (!sum->terms.empty()) who[sum->to] = who[sum->terms[0]];
    }
    const auto* compute = std::get_if<Compute>(&step.what);
    if (compute == nullptr) continue;
    for (const Part& part : compute->parts) {
      for (const Columns& columns : part.columns) {
        std::vector<int> before;
        if (columns.dk_before.has_value()) before = who[*columns.dk_before];
        // A device's rows of two runs may both add.
        if (before.empty() || before.back() != step.device) {
          before.push_back(step.device);
        }
        who[*columns.dk] = before;
      }
    }
  }
  return who;
}

TEST(RingBackwardTest, DevicesAddToABlockInTheOrderInWhichTheyAreReached) {
  constexpr int kDevices = 4;
  for (const PlanKind kind : kRingKinds) {
    const Plan plan = MakePlan(Full(kind, kDevices * kOwn), kDevices);
    std::map<int, std::vector<int>> who = WhoAdds(plan);
    int results = 0;
    for (const Step& step : plan.steps) {
      const auto* download = std::get_if<Download>(&step.what);
      if (download == nullptr ||
          plan.buffers[download->from].tensor != TensorId::kDK) {
        continue;
      }
      ++results;
      std::vector<int> order;
      for (int i = 0; i < kDevices; ++i) {
        order.push_back((step.device + i) % kDevices);
      }
      EXPECT_EQ(who[download->from], order) << PlanName(kind);
    }
    // In two sections of heads.
    EXPECT_EQ(results,
              2 * (kind == PlanKind::kZigzag ? 2 * kDevices : kDevices));
  }
}

// Whoever adds last, what a device has in the beginning it has in the end.
TEST(RingBackwardTest, GradientsEndWhereTheirTokensAre) {
  for (const PlanKind kind : kRingKinds) {
    for (const int64_t tokens : {4096, 4099, 3}) {
      const Plan plan = MakePlan(CausalBackward(kind, tokens), 4);
      std::map<std::pair<TensorId, int>, int64_t> given, got;  // by device
      for (const Step& step : plan.steps) {
        if (const auto* download = std::get_if<Download>(&step.what)) {
          got[{plan.buffers[download->from].tensor, step.device}] +=
              download->slice.heads * download->slice.tokens.count;
        }
        if (const auto* upload = std::get_if<Upload>(&step.what)) {
          given[{plan.buffers[upload->to].tensor, step.device}] +=
              upload->slice.heads * upload->slice.tokens.count;
        }
      }
      for (int device = 0; device < 4; ++device) {
        for (const auto& [of, gradient] :
             {std::pair(TensorId::kQ, TensorId::kDQ),
              std::pair(TensorId::kK, TensorId::kDK),
              std::pair(TensorId::kV, TensorId::kDV)}) {
          EXPECT_EQ((got[{gradient, device}]), (given[{of, device}]))
              << PlanName(kind) << " device " << device;
        }
      }
    }
  }
}

TEST(RingBackwardTest, MemoryIsForTwoBlocksWhateverTheDevices) {
  constexpr int64_t kRows = kOwn * kHeads;
  for (const PlanKind kind : kRingKinds) {
    for (const int n : {3, 4, 8}) {
      const Plan plan = MakePlan(Full(kind, kOwn * n), n);
      for (const PlanCost::Device& device : plan.cost.devices) {
        EXPECT_EQ(device.memory_bytes, 2 * kRows * 128 * 2 +  // Q, dO
                                           2 * kRows * 4 +    // LSE, delta
                                           kRows * 128 * 4 +  // dQ, first O
                                           kRows * 128 * 2 +  // dQ, rounded
                                           2 * kOwn * kTokenBytes +
                                           2 * kOwn * kTokenFloats +
                                           kOwn * kTokenBytes)  // dK, dV
            << PlanName(kind) << n;
      }
    }
  }
  // Under a causal mask the last device adds the last part of every block.
  const auto most = [](int n) {
    int64_t bytes = 0;
    for (const PlanCost::Device& device :
         MakePlan(CausalBackward(PlanKind::kRing, kOwn * n), n).cost.devices) {
      bytes = std::max(bytes, device.memory_bytes);
    }
    return bytes;
  };
  EXPECT_EQ(most(16), most(4));
}

TEST(RingBackwardTest, GradientsTravelBehindTheirColumnsAndHome) {
  for (const PlanKind kind : kRingKinds) {
    for (const int n : {1, 2, 3, 8}) {
      const Plan plan = MakePlan(Full(kind, kOwn * n), n);
      for (const PlanCost::Device& device : plan.cost.devices) {
        EXPECT_EQ(device.pulled_bytes,
                  (n - 1) * kOwn * (kTokenBytes + kTokenFloats) +
                      (n > 1 ? kOwn * kTokenBytes : 0))
            << PlanName(kind) << n;
      }
    }
  }
}

// Under a window of 100 tokens a block's last ones alone go to a neighbour, and
// come back rounded.
TEST(RingBackwardTest, AWindowsGradientsComeFromTheNeighbour) {
  PlanRequest request = CausalBackward(PlanKind::kRing, 4096);
  request.sequences[0].sees.left = 100;
  const Plan plan = MakePlan(request, 4);
  EXPECT_TRUE(Validate(request, plan).ok());
  const int64_t there = 100 * (kTokenBytes + kTokenFloats);
  const int64_t back = 100 * kTokenBytes;
  const std::vector<int64_t> pulled = {back, there + back, there + back, there};
  for (int device = 0; device < 4; ++device) {
    EXPECT_EQ(plan.cost.devices[device].pulled_bytes, pulled[device]) << device;
  }
}

// What a section of heads adds to comes while the other one is computed; what
// goes home of the last one nothing hides.
TEST(RingBackwardTest, PassingOnHidesBehindComputing) {
  constexpr int kDevices = 4;
  PlanRequest request = Full(PlanKind::kRing, kDevices * kOwn);
  request.inputs = InputsLie::kWherePlanned;
  request.rates.memory_bytes = 1e30;
  const auto predict = [&] {
    return absl::ToDoubleSeconds(Predict(request, MakePlan(request, kDevices)));
  };
  const double flops = MakePlan(request, kDevices).cost.devices[0].flops;
  const double step = kOwn * (kTokenBytes + kTokenFloats);  // bytes
  KernelRatesOf(request).flops = flops;                     // in one second
  request.rates.pull.bytes = 8 * step;
  const double home = kOwn * kTokenBytes / 2 / request.rates.pull.bytes;
  EXPECT_NEAR(predict(), 1 + home, 1e-3);
  // Of one head alone there are no two sections: gradients come between steps.
  request.problems[0].q_heads = request.problems[0].kv_heads = 1;
  KernelRatesOf(request).flops = flops / 2;
  request.rates.pull.bytes = 4 * step;
  const double gradients = kOwn * kTokenFloats / 2 / request.rates.pull.bytes;
  EXPECT_NEAR(predict(), 1 + (kDevices - 1) * gradients + home * 2, 1e-3);
}

}  // namespace
}  // namespace attnd::plan
