// Large requests that are paused, as the policy sees them.

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduling/policy.h"
#include "tests/server/policy_testing.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kLarge = 1e12;
constexpr LaneFilter kNoMoreLarge = {.may_begin_large = false};

class PolicySlicesTest : public ::testing::Test {
 protected:
  // Puts `id` back, with `flops` of it left, for device 0; its new id.
  uint64_t PutBack(uint64_t id, double flops) {
    const PolicyTester::Spec& spec = t_.specs.at(id);
    Pending p;
    p.id = ++t_.last_id;
    p.client = spec.client;
    p.priority = spec.priority;
    p.flops = flops;
    p.devices = 1;
    p.admitted = spec.admitted;
    p.deadline = spec.deadline;
    t_.specs[p.id] = spec;
    t_.policy.PutBack(std::move(p));
    return t_.last_id;
  }

  PolicyTester t_{PolicyOptions()};
};

TEST_F(PolicySlicesTest, OnlyWhatIsLargerThanAGroupIsLarge) {
  t_.Add({.flops = 1.1e9});
  Decision decision = t_.policy.Next(kAnyLane, kNow);
  EXPECT_THAT(decision.ids, ElementsAre(1));
  EXPECT_TRUE(decision.large);
  t_.Add({.flops = 1e9});
  EXPECT_FALSE(t_.policy.Next(kAnyLane, kNow).large);
  // What a lane for small requests takes is never paused.
  PolicyOptions options;
  options.small_request_flops = 1e10;
  PolicyTester small(options);
  small.Add({.flops = 5e9});
  EXPECT_FALSE(small.policy.Next(kSmallLane, kNow).large);
}

TEST_F(PolicySlicesTest, OthersPassALargeOneThatMayNotBegin) {
  t_.Add({.flops = kLarge});
  t_.Add({.flops = 5e8});
  EXPECT_THAT(t_.Next(kNoMoreLarge), ElementsAre(2));
  EXPECT_FALSE(t_.policy.Has(kNoMoreLarge));
  EXPECT_THAT(t_.Next(kNoMoreLarge), IsEmpty());
  EXPECT_THAT(t_.Next(), ElementsAre(1));
}

TEST_F(PolicySlicesTest, WhatHasBegunGoesOnWhereItIs) {
  t_.Add({.flops = kLarge});
  t_.Next();
  const uint64_t rest = PutBack(1, kLarge / 2);
  EXPECT_EQ(t_.policy.flops(), kLarge / 2);
  EXPECT_FALSE(t_.policy.Has(kSmallLane));
  EXPECT_FALSE(t_.policy.Has({.device = 2}));
  Decision decision = t_.policy.Next(kNoMoreLarge, kNow);
  EXPECT_THAT(decision.ids, ElementsAre(rest));
  EXPECT_TRUE(decision.large);
}

// Though nearly nothing is left of it.
TEST_F(PolicySlicesTest, WhatWasPausedHasNoCompany) {
  t_.Add({.flops = kLarge, .head_dim = 0});
  t_.Next();
  const uint64_t rest = PutBack(1, 1);
  const uint64_t a = t_.Add({.client = "a", .head_dim = 0});
  const uint64_t b = t_.Add({.client = "b", .head_dim = 0});
  EXPECT_THAT(t_.Next(), ElementsAre(rest));
  EXPECT_THAT(t_.Next(), ElementsAre(a, b));
  const uint64_t again = PutBack(rest, 1);
  t_.Add({.client = "a", .head_dim = 0});
  t_.policy.Remove(again);
  EXPECT_EQ(t_.policy.requests(), 1);
}

TEST_F(PolicySlicesTest, ItsOwnClientsRequestsPassItOnceItIsPaused) {
  t_.Add({.flops = kLarge});
  t_.Next();
  t_.Add({.flops = 5e9});
  const uint64_t rest = PutBack(1, kLarge / 2);
  t_.Add({.flops = 5e9});
  EXPECT_THAT(t_.Next(), ElementsAre(2));
  EXPECT_THAT(t_.Next(), ElementsAre(rest));
}

TEST_F(PolicySlicesTest, ExpiresAsTheRestDoes) {
  t_.Add({.flops = kLarge, .deadline = kNow + absl::Seconds(1)});
  t_.Next();
  const uint64_t rest = PutBack(1, kLarge / 2);
  EXPECT_THAT(t_.policy.TakeExpired(kNow + absl::Seconds(1)),
              ElementsAre(rest));
}

// The FLOPs that each client gets of 3e12, while all have work that waits; the
// client "sliced" has one request that never ends, in slices of 1e10.
std::map<std::string, double> Shares(PolicyTester& t,
                                     const PolicyTester::Spec& other,
                                     Priority sliced_priority) {
  std::map<std::string, double> got;
  double left = 1e14;
  uint64_t sliced = t.Add({"sliced", left, sliced_priority});
  std::map<uint64_t, PolicyTester::Spec> others;
  for (int i = 0; i < 3; ++i) others[t.Add(other)] = other;
  double all = 0;
  while (all < 3e12) {
    const Decision decision = t.policy.Next(kAnyLane, kNow);
    EXPECT_EQ(decision.ids.size(), 1);
    if (decision.ids.front() != sliced) {
      got[other.client] += other.flops;
      all += other.flops;
      t.Add(other);
      continue;
    }
    constexpr double kSlice = 1e10;
    got["sliced"] += kSlice;
    all += kSlice;
    left -= kSlice;
    Pending p;
    p.id = sliced = ++t.last_id;
    p.client = "sliced";
    p.priority = sliced_priority;
    p.flops = left;
    p.devices = 1;
    t.policy.PutBack(std::move(p));
  }
  return got;
}

TEST_F(PolicySlicesTest, ASlicedRequestSharesByCostWithAnotherClient) {
  for (const double flops : {2e9, 3e10}) {
    PolicyTester t{PolicyOptions()};
    auto got = Shares(t, {"other", flops}, Priority::kNormal);
    EXPECT_NEAR(got["sliced"] / got["other"], 1, 0.05);
  }
}

TEST_F(PolicySlicesTest, ASlicedRequestSharesByPriority) {
  PolicyTester t{PolicyOptions()};
  auto got = Shares(t, {"other", 2e9, Priority::kHigh}, Priority::kNormal);
  EXPECT_NEAR(got["other"] / got["sliced"], 4, 0.2);
}

// What it has not run is no credit when all has been forgotten meanwhile.
TEST_F(PolicySlicesTest, WhatComesBackGivesNoCredit) {
  t_.Add({"sliced", kLarge});
  t_.Next();  // nothing is pending: nobody owes anything
  for (int i = 0; i < 10; ++i) t_.Add({"sliced", 5e9});
  for (int i = 0; i < 10; ++i) t_.Add({"other", 5e9});
  for (int i = 0; i < 6; ++i) t_.Next();
  PutBack(1, kLarge / 2);
  std::map<std::string, int> ran;
  for (int i = 0; i < 8; ++i) {
    for (uint64_t id : t_.Next()) {
      if (t_.specs[id].flops == 5e9) ++ran[t_.specs[id].client];
    }
  }
  EXPECT_GE(ran["other"], 4);
}

}  // namespace
}  // namespace attnd::server
