// Backward of `ring`, `striped` and `zigzag` whose blocks are pulled from all:
// who has terms of gradients, in which order they are added up and where, what
// travels, and how much memory that takes.

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/validate.h"
#include "tests/kernels/plan/causal_request.h"

namespace attnd::plan {
namespace {

constexpr int kDevices = 4;
constexpr int64_t kHeads = 2;
constexpr int64_t kOwn = 1024;  // tokens a device
// Of a token, of K and V together: bf16, and f32.
constexpr int64_t kTokenBytes = kHeads * 2 * 128 * 2;
constexpr int64_t kTokenFloats = 2 * kTokenBytes;

PlanRequest CausalPulled(PlanKind kind, int64_t tokens) {
  PlanRequest request = Backward(Causal(kind, tokens, kHeads));
  request.transport = Transport::kPull;
  return request;
}
PlanRequest FullPulled(PlanKind kind, int64_t tokens) {
  PlanRequest request = CausalPulled(kind, tokens);
  request.sequences[0].sees.right = -1;
  return request;
}

// By buffer, the device that has computed what is in it.
std::map<int, int> WhoComputes(const Plan& plan) {
  std::map<int, int> who;
  for (const Step& step : plan.steps) {
    if (const auto* compute = std::get_if<Compute>(&step.what)) {
      for (const Part& part : compute->parts) {
        for (const Columns& columns : part.columns) {
          who[*columns.dk] = who[*columns.dv] = step.device;
        }
      }
    }
    if (const auto* pull = std::get_if<Pull>(&step.what)) {
      for (const Pull::Item& item : pull->items) {
        if (who.contains(item.from)) who[item.to] = who[item.from];
      }
    }
  }
  return who;
}

TEST(PulledBackwardTest, OwnersAddTermsInTheOrderOfDevices) {
  for (const PlanKind kind : kRingKinds) {
    const Plan plan = MakePlan(FullPulled(kind, kDevices * kOwn), kDevices);
    const std::map<int, int> who = WhoComputes(plan);
    int64_t summed = 0;
    for (const Step& step : plan.steps) {
      const auto* sum = std::get_if<Sum>(&step.what);
      if (sum == nullptr) continue;
      std::vector<int> order;
      for (const int term : sum->terms) order.push_back(who.at(term));
      EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3})) << PlanName(kind);
      summed += sum->slice.tokens.count;
    }
    EXPECT_EQ(summed, 2 * kDevices * kOwn);  // dK and dV
  }
}

TEST(PulledBackwardTest, GradientsEndWhereTheirTokensAre) {
  for (const PlanKind kind : kRingKinds) {
    for (const int64_t tokens : {4096, 4099, 3}) {
      const Plan plan = MakePlan(CausalPulled(kind, tokens), kDevices);
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
      for (int device = 0; device < kDevices; ++device) {
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

TEST(PulledBackwardTest, ColumnsAndTermsTravelOnce) {
  for (const PlanKind kind : kRingKinds) {
    for (const int n : {1, 2, 3, 8}) {
      const Plan plan = MakePlan(FullPulled(kind, kOwn * n), n);
      for (const PlanCost::Device& device : plan.cost.devices) {
        EXPECT_EQ(device.pulled_bytes,
                  (n - 1) * kOwn * (kTokenBytes + kTokenFloats))
            << PlanName(kind) << n;
      }
    }
  }
}

// Under a window of 100 tokens a block's last ones alone go to a neighbour, and
// a term of these comes back.
TEST(PulledBackwardTest, AWindowsTermsComeFromTheNeighbour) {
  PlanRequest request = CausalPulled(PlanKind::kRing, kDevices * kOwn);
  request.sequences[0].sees.left = 100;
  const Plan plan = MakePlan(request, kDevices);
  EXPECT_TRUE(Validate(request, plan).ok());
  const int64_t there = 100 * kTokenBytes, back = 100 * kTokenFloats;
  const std::vector<int64_t> pulled = {back, there + back, there + back, there};
  for (int device = 0; device < kDevices; ++device) {
    EXPECT_EQ(plan.cost.devices[device].pulled_bytes, pulled[device]) << device;
  }
}

TEST(PulledBackwardTest, MemoryIsForAllBlocksAndTwiceTheirTerms) {
  constexpr int64_t kRows = kOwn * kHeads;
  for (const PlanKind kind : kRingKinds) {
    for (const int n : {2, 3, 8}) {
      const Plan plan = MakePlan(FullPulled(kind, kOwn * n), n);
      for (const PlanCost::Device& device : plan.cost.devices) {
        EXPECT_EQ(device.memory_bytes,
                  2 * kRows * 128 * 2 +         // Q, dO
                      2 * kRows * 4 +           // LSE, delta
                      kRows * 128 * 4 +         // dQ, first O
                      kRows * 128 * 2 +         // dQ, rounded
                      n * kOwn * kTokenBytes +  // K, V
                      (2 * n - 1) * kOwn * kTokenFloats +
                      kOwn * kTokenBytes)  // dK, dV
            << PlanName(kind) << n;
      }
    }
  }
}

// A term is pulled once its own launch is over, whatever else its device or
// another one computes.
TEST(PulledBackwardTest, ATermIsPulledAsSoonAsItIsThere) {
  for (const PlanKind kind : kRingKinds) {
    const Plan plan = MakePlan(FullPulled(kind, kDevices * kOwn), kDevices);
    int pulls = 0;
    for (const Step& step : plan.steps) {
      const auto* pull = std::get_if<Pull>(&step.what);
      if (pull == nullptr ||
          plan.buffers[pull->items[0].to].tensor != TensorId::kDK) {
        continue;
      }
      ++pulls;
      // A zigzag's two runs of rows add one after the other, but the last
      // device's, which are one.
      ASSERT_EQ(step.after.size(), 1);
      const Step& before = plan.steps[step.after[0]];
      EXPECT_TRUE(std::holds_alternative<Compute>(before.what));
      EXPECT_EQ(before.device, pull->peer);
      for (const Columns& columns :
           std::get<Compute>(before.what).parts[0].columns) {
        EXPECT_TRUE(std::ranges::any_of(
            pull->items,
            [&](const Pull::Item& item) { return item.from == *columns.dk; }));
      }
    }
    EXPECT_EQ(pulls, kDevices * (kDevices - 1)) << PlanName(kind);
  }
}

}  // namespace
}  // namespace attnd::plan
