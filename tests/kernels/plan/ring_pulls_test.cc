// Plans of `ring`, `striped` and `zigzag` whose blocks are pulled from all that
// have them: what each device pulls and from whom, what it waits for, in how
// many launches it computes, and how much memory that takes.

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/plan_builder.h"
#include "kernels/plan/ring_phases.h"
#include "kernels/plan/validate.h"
#include "tests/kernels/plan/causal_request.h"
#include "tests/kernels/plan/random_request.h"

namespace attnd::plan {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHeads = 2;
constexpr int64_t kOwn = 1024;  // tokens a device
// K and V of a token, bf16.
constexpr int64_t kTokenBytes = kHeads * 2 * 128 * 2;
constexpr int kDeviceCounts[] = {1, 2, 3, 4, 7};

PlanRequest Pulled(PlanRequest request) {
  request.transport = Transport::kPull;
  return request;
}
PlanRequest CausalPulled(PlanKind kind, int64_t tokens) {
  return Pulled(Causal(kind, tokens, kHeads));
}
PlanRequest FullPulled(PlanKind kind, int64_t tokens) {
  PlanRequest request = CausalPulled(kind, tokens);
  request.sequences[0].sees.right = -1;
  return request;
}
// Of any shapes, in any number of phases.
PlanRequest RandomPulled(uint32_t seed) {
  PlanRequest request = Pulled(RandomRequest(seed));
  request.kind = kRingKinds[seed % 3];
  request.phases = static_cast<int>(seed / 3 % 6);
  return request;
}

TEST(RingPullsTest, IsValidForAnyShapesAndDevices) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    const PlanRequest request = RandomPulled(seed);
    for (const int devices : kDeviceCounts) {
      const Plan plan = MakePlan(request, devices);
      const absl::Status status = Validate(request, plan);
      ASSERT_TRUE(status.ok()) << status << "\nseed " << seed << "\n"
                               << Explain(request, plan);
    }
  }
}

// K or V of one token of one head of one sequence.
using Element = std::tuple<TensorId, int32_t, int64_t, int64_t>;

void AddElements(TensorId id, const Slice& slice, std::vector<Element>& to) {
  for (int64_t head = slice.head; head < slice.head + slice.heads; ++head) {
    for (int64_t i = 0; i < slice.tokens.count; ++i) {
      to.emplace_back(id, slice.sequence, head,
                      slice.tokens.first + i * slice.tokens.step);
    }
  }
}

// What a device's parts read of K and V, each element once.
std::set<Element> Read(const Plan& plan, int device) {
  std::vector<Element> read;
  for (const Step& step : plan.steps) {
    const auto* compute = std::get_if<Compute>(&step.what);
    if (compute == nullptr || step.device != device) continue;
    for (const Part& part : compute->parts) {
      for (const Columns& columns : part.columns) {
        const Slice slice{
            part.sequence, part.kv_head, part.kv_heads, columns.run, {}};
        AddElements(TensorId::kK, slice, read);
        AddElements(TensorId::kV, slice, read);
      }
    }
  }
  return {read.begin(), read.end()};
}

TEST(RingPullsTest, EachColumnIsPulledOnceFromItsOwner) {
  int64_t elements = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    PlanRequest request = RandomPulled(seed);
    request.inputs = InputsLie::kOnHost;
    if (request.op != Op::kForward) continue;
    for (const int devices : kDeviceCounts) {
      const Plan plan = MakePlan(request, devices);
      std::vector<std::vector<Element>> given(devices), pulled(devices);
      for (const Step& step : plan.steps) {
        if (const auto* upload = std::get_if<Upload>(&step.what)) {
          const Buffer& to = plan.buffers[upload->to];
          if (HasColumns(to.tensor)) {
            AddElements(to.tensor, upload->slice, given[step.device]);
          }
        }
        const auto* pull = std::get_if<Pull>(&step.what);
        if (pull == nullptr) continue;
        for (const Pull::Item& item : pull->items) {
          const TensorId id = plan.buffers[item.to].tensor;
          std::vector<Element> from;
          AddElements(id, item.slice, from);
          for (const Element& element : from) {
            ASSERT_TRUE(std::ranges::count(given[pull->peer], element) == 1)
                << "seed " << seed;
            pulled[step.device].push_back(element);
          }
        }
      }
      for (int device = 0; device < devices; ++device) {
        // No column twice, and none that no row is computed over: but for those
        // between the ones that a zigzag's two runs of rows see.
        std::set<Element> once(pulled[device].begin(), pulled[device].end());
        EXPECT_EQ(once.size(), pulled[device].size()) << "seed " << seed;
        std::set<Element> needed = Read(plan, device);
        for (const Element& own : given[device]) needed.erase(own);
        if (request.kind != PlanKind::kZigzag) {
          EXPECT_EQ(once, needed) << "seed " << seed;
        }
        EXPECT_TRUE(std::ranges::includes(once, needed)) << "seed " << seed;
        elements += static_cast<int64_t>(once.size());
      }
    }
  }
  EXPECT_GT(elements, 10000);
}

// Pulled bytes by device, in tokens.
std::vector<int64_t> PulledTokens(const PlanRequest& request, int n) {
  std::vector<int64_t> tokens;
  for (const PlanCost::Device& device : MakePlan(request, n).cost.devices) {
    EXPECT_EQ(device.pulled_bytes % kTokenBytes, 0);
    tokens.push_back(device.pulled_bytes / kTokenBytes);
  }
  return tokens;
}

TEST(RingPullsTest, WhatRowsSeeIsPulledAndNoMore) {
  const auto pulled = [](PlanKind kind) {
    return PulledTokens(CausalPulled(kind, 4096), 4);
  };
  EXPECT_EQ(pulled(PlanKind::kRing),
            (std::vector<int64_t>{0, 1024, 2 * 1024, 3 * 1024}));
  // The last row of device r sees all of the devices' before it, and all but
  // the last token of those after it.
  EXPECT_EQ(pulled(PlanKind::kStriped),
            (std::vector<int64_t>{3 * 1024 - 3, 3 * 1024 - 2, 3 * 1024 - 1,
                                  3 * 1024}));
  // First halves of all; and second halves of the devices after it, which are
  // earlier.
  EXPECT_EQ(pulled(PlanKind::kZigzag),
            (std::vector<int64_t>{6 * 512, 5 * 512, 4 * 512, 3 * 512}));
}

// By ring a zigzag's last columns would go round all devices between two
// neighbours; here each of two runs of rows pulls its window alone.
TEST(RingPullsTest, AWindowComesFromTheNeighbour) {
  PlanRequest request = CausalPulled(PlanKind::kRing, 4096);
  request.sequences[0].sees.left = 100;
  EXPECT_EQ(PulledTokens(request, 4), (std::vector<int64_t>{0, 100, 100, 100}));
  request.kind = PlanKind::kZigzag;
  EXPECT_EQ(PulledTokens(request, 4),
            (std::vector<int64_t>{100, 200, 200, 100}));
}

TEST(RingPullsTest, APullWaitsForNothingThatIsComputed) {
  for (const PlanKind kind : kRingKinds) {
    const Plan plan = MakePlan(FullPulled(kind, 4096), 4);
    bool computes = false;
    std::vector<std::vector<int>> peers(4);
    std::vector<int> last(4, -1);  // a device's pulls so far
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      const Step& step = plan.steps[i];
      computes |= std::holds_alternative<Compute>(step.what);
      const auto* pull = std::get_if<Pull>(&step.what);
      if (pull == nullptr) continue;
      EXPECT_FALSE(computes) << "pulled behind a Compute";
      peers[step.device].push_back(pull->peer);
      // For the owner's uploads, and the device's own pull before it.
      std::vector<int> pulls;
      for (const int before : step.after) {
        const Step& other = plan.steps[before];
        if (std::holds_alternative<Upload>(other.what)) {
          EXPECT_EQ(other.device, pull->peer);
        } else {
          pulls.push_back(before);
        }
      }
      const int own = std::exchange(last[step.device], static_cast<int>(i));
      EXPECT_EQ(pulls, own < 0 ? std::vector<int>{} : std::vector<int>{own});
    }
    // The nearest first.
    EXPECT_EQ(peers[1], (std::vector<int>{0, 3, 2})) << PlanName(kind);
  }
}

TEST(RingPullsTest, MemoryIsForAllBlocksAndTwoStates) {
  constexpr int64_t kRows = kOwn * kHeads;
  for (const PlanKind kind : kRingKinds) {
    for (const int n : {3, 4, 8}) {
      const Plan plan = MakePlan(FullPulled(kind, kOwn * n), n);
      for (const PlanCost::Device& device : plan.cost.devices) {
        EXPECT_EQ(device.memory_bytes, kRows * 128 * 2 +          // Q
                                           2 * kRows * 128 * 4 +  // O
                                           2 * kRows * 4 +        // LSE
                                           n * kOwn * kTokenBytes)
            << PlanName(kind) << n;
      }
    }
  }
}

TEST(RingPullsTest, PhasesGrowAsBlocksCome) {
  PlanRequest request = FullPulled(PlanKind::kRing, 4096);
  EXPECT_EQ(PhasesOf(request, 8), (std::vector<int>{0, 1, 2, 2, 3, 3, 3, 3}));
  EXPECT_EQ(PhasesOf(request, 2), (std::vector<int>{0, 1}));
  EXPECT_EQ(PhasesOf(request, 1), std::vector<int>{0});
  request.phases = 1;
  EXPECT_EQ(PhasesOf(request, 4), (std::vector<int>{0, 0, 0, 0}));
  request.phases = 3;
  EXPECT_EQ(PhasesOf(request, 7), (std::vector<int>{0, 1, 1, 1, 2, 2, 2}));
  // As many as there are blocks.
  request.phases = 100;
  EXPECT_EQ(PhasesOf(request, 4), (std::vector<int>{0, 1, 2, 3}));
  // Blocks that go round are there one at a time.
  request.transport = Transport::kRing;
  request.phases = 2;
  EXPECT_EQ(PhasesOf(request, 4), (std::vector<int>{0, 1, 2, 3}));
}

TEST(RingPullsTest, APhaseIsOneLaunchOverAllItsBlocks) {
  PlanRequest request = FullPulled(PlanKind::kRing, 4096);
  for (const int phases : {1, 2, 4}) {
    request.phases = phases;
    const Plan plan = MakePlan(request, 4);
    int computes = 0;
    size_t columns = 0;
    for (const Step& step : plan.steps) {
      const auto* compute = std::get_if<Compute>(&step.what);
      if (compute == nullptr || step.device != 2) continue;
      ++computes;
      ASSERT_EQ(compute->parts.size(), 1);
      columns += compute->parts[0].columns.size();
      // Each but the first merges with what is there.
      EXPECT_EQ(compute->parts[0].before.has_value(), computes > 1);
    }
    EXPECT_EQ(computes, phases);
    EXPECT_EQ(columns, 4);
    EXPECT_THAT(plan.why, HasSubstr("pulled from all"));
  }
}

}  // namespace
}  // namespace attnd::plan
