// Shares between clients and priorities, as the policy gives them.

#include "server/scheduling/fair_queue.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/policy_testing.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;

TEST(FairQueueTest, ClientsTakeTurns) {
  PolicyTester t(NoGroups());
  for (int i = 0; i < 3; ++i) t.Add({.client = "a"});  // 1, 2, 3
  for (int i = 0; i < 3; ++i) t.Add({.client = "b"});  // 4, 5, 6
  EXPECT_THAT(t.All(), ElementsAre(1, 4, 2, 5, 3, 6));
}

// Serves `steps` groups while every client keeps its queue full; returns what
// each client's (or priority's) FLOPs were.
template <typename Key>
std::map<Key, double> Saturate(PolicyTester& t, int steps,
                               const std::vector<PolicyTester::Spec>& backlog,
                               Key PolicyTester::Spec::*key) {
  for (const PolicyTester::Spec& spec : backlog) t.Add(spec);
  std::map<Key, double> served;
  for (int step = 0; step < steps; ++step) {
    for (uint64_t id : t.Next()) {
      const PolicyTester::Spec spec = t.specs[id];
      served[spec.*key] += spec.flops;
      t.Add(spec);
    }
  }
  return served;
}

TEST(FairQueueTest, SaturatingClientsGetEqualSharesByCostWhateverTheyAskFor) {
  for (int batch : {1, 16}) {
    PolicyOptions options;
    options.max_batch_requests = batch;
    PolicyTester t(options);
    std::vector<PolicyTester::Spec> backlog;
    // 64 connections' worth of one size against one's of another.
    for (int i = 0; i < 64; ++i) backlog.push_back({"many", 3e8});
    for (int i = 0; i < 20; ++i) backlog.push_back({"few", 1e8});
    for (int i = 0; i < 20; ++i) backlog.push_back({"large", 9e8});
    auto served = Saturate(t, 5000, backlog, &PolicyTester::Spec::client);
    ASSERT_EQ(served.size(), 3);
    for (const auto& [client, flops] : served) {
      EXPECT_NEAR(flops / served["many"], 1, 0.1) << client;
    }
  }
}

TEST(FairQueueTest, WhoHasMoreSharesGetsSoMuchMore) {
  for (int batch : {1, 16}) {
    PolicyOptions options;
    options.max_batch_requests = batch;
    PolicyTester t(options);
    std::vector<PolicyTester::Spec> backlog;
    for (int i = 0; i < 64; ++i) backlog.push_back({"one", 3e8});
    for (int i = 0; i < 20; ++i) {
      backlog.push_back({.client = "three", .flops = 1e8, .shares = 3});
      backlog.push_back({.client = "half", .flops = 9e8, .shares = 0.5});
    }
    auto served = Saturate(t, 5000, backlog, &PolicyTester::Spec::client);
    EXPECT_NEAR(served["three"] / served["one"], 3, 0.3);
    EXPECT_NEAR(served["half"] / served["one"], 0.5, 0.05);
  }
}

TEST(FairQueueTest, PrioritiesShareSixteenToFourToOne) {
  PolicyTester t(NoGroups());
  std::vector<PolicyTester::Spec> backlog;
  for (int i = 0; i < 10; ++i) {
    backlog.push_back({.flops = 2e8, .priority = Priority::kLow});
    backlog.push_back({.flops = 5e8, .priority = Priority::kNormal});
    backlog.push_back({.flops = 1e8, .priority = Priority::kHigh});
  }
  auto served = Saturate(t, 20000, backlog, &PolicyTester::Spec::priority);
  const double low = served[Priority::kLow];
  EXPECT_NEAR(served[Priority::kNormal] / low, 4, 0.4);
  EXPECT_NEAR(served[Priority::kHigh] / low, 16, 1.6);
}

TEST(FairQueueTest, HighPriorityRunsNextWhenItArrivesButLowNeverStarves) {
  PolicyTester t(NoGroups());
  for (int i = 0; i < 100; ++i) t.Add({.priority = Priority::kNormal});
  t.Next();
  const uint64_t high = t.Add({.priority = Priority::kHigh});
  EXPECT_THAT(t.Next(), ElementsAre(high));
  const uint64_t low = t.Add({.priority = Priority::kLow});
  int steps = 0;
  for (bool ran = false; !ran; ++steps) {
    ASSERT_LT(steps, 30);
    for (uint64_t id : t.Next()) {
      ran |= id == low;
      t.Add({.priority = Priority::kNormal});
    }
    t.Add({.priority = Priority::kHigh});
  }
}

TEST(FairQueueTest, AClientThatWasIdleHasSavedUpNothing) {
  PolicyTester t(NoGroups());
  t.Add({.client = "idle"});
  for (int i = 0; i < 1000; ++i) t.Add({.client = "busy"});
  for (int i = 0; i < 500; ++i) t.Next();
  for (int i = 0; i < 20; ++i) t.Add({.client = "idle"});
  int idle = 0;
  for (int i = 0; i < 20; ++i) {
    for (uint64_t id : t.Next()) idle += t.specs[id].client == "idle";
  }
  EXPECT_NEAR(idle, 10, 1);
}

TEST(FairQueueTest, AClientThatLeavesAndReturnsStillOwes) {
  PolicyTester t(NoGroups());
  for (int i = 0; i < 10; ++i) t.Add({.client = "other", .flops = 1e8});
  t.Add({.client = "returns", .flops = 1e9});
  t.Next();
  ASSERT_THAT(t.Next(), ElementsAre(11));
  t.Add({.client = "returns", .flops = 1e9});
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(t.specs[t.Next().at(0)].client, "other") << i;
  }
}

TEST(FairQueueTest, ClientsThatOweNothingAreForgotten) {
  PolicyTester t(NoGroups());
  t.Add({.client = "stays"});
  for (int i = 0; i < 10000; ++i) {
    t.Add({.client = std::to_string(i)});
    t.Next();
    t.Add({.client = "stays"});
    t.Next();
    ASSERT_LE(t.policy.clients(), 5);
  }
  t.All();
  EXPECT_EQ(t.policy.clients(), 0);
}

TEST(FairQueueTest, ClientsThatComeOnceCostBoundedMemory) {
  PolicyTester t(NoGroups());
  // Each starts at the virtual time, which therefore never moves on.
  t.Add({.client = "first"});
  for (int i = 0; i < 10000; ++i) {
    t.Add({.client = std::to_string(i)});
    t.Next();
  }
  EXPECT_LE(t.policy.clients(), 1026);
}

TEST(FairQueueTest, TinyRequestsPayForMoreThanTheirFlops) {
  PolicyTester t(NoGroups());
  for (int i = 0; i < 1000; ++i) t.Add({.client = "tiny", .flops = 1});
  for (int i = 0; i < 10; ++i) t.Add({.client = "real", .flops = 9e6});
  int tiny = 0;
  for (int i = 0; i < 110; ++i) {
    for (uint64_t id : t.Next()) tiny += t.specs[id].client == "tiny";
  }
  EXPECT_NEAR(tiny, 100, 11);
}

}  // namespace
}  // namespace attnd::server
