// The policy alone: no time passes but what the test says.

#include "server/policy.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const absl::Time kNow = absl::UnixEpoch();
constexpr LaneFilter kAnyLane;
constexpr LaneFilter kSmallLane = {.device = 1, .small_only = true};

PolicyOptions NoGroups() {
  PolicyOptions options;
  options.max_batch_requests = 1;
  return options;
}

class Tester {
 public:
  explicit Tester(const PolicyOptions& options) : policy(options) {}

  struct Spec {
    std::string client = "client";
    double flops = 1e6;
    Priority priority = Priority::kNormal;
    int64_t head_dim = 64;
    uint64_t devices = ~0;
    absl::Time admitted = kNow;
    absl::Time deadline = absl::InfiniteFuture();
  };
  uint64_t Add(const Spec& spec) {
    Pending p;
    p.id = ++last_id;
    p.client = spec.client;
    p.flops = spec.flops;
    p.priority = spec.priority;
    p.key.head_dim = p.key.value_dim = spec.head_dim;
    p.devices = spec.devices;
    p.admitted = spec.admitted;
    p.deadline = spec.deadline;
    specs[p.id] = spec;
    policy.Add(std::move(p));
    return last_id;
  }
  std::vector<uint64_t> Next(const LaneFilter& lane = kAnyLane,
                             absl::Time now = kNow) {
    return policy.Next(lane, now).ids;
  }
  // All that is pending, in the order it runs in.
  std::vector<uint64_t> All() {
    std::vector<uint64_t> all;
    for (auto ids = Next(); !ids.empty(); ids = Next()) {
      all.insert(all.end(), ids.begin(), ids.end());
    }
    return all;
  }

  Policy policy;
  std::map<uint64_t, Spec> specs;
  uint64_t last_id = 0;
};

TEST(PolicyTest, NothingPendingIsNothingToRun) {
  Tester t(NoGroups());
  Decision decision = t.policy.Next(kAnyLane, kNow);
  EXPECT_THAT(decision.ids, IsEmpty());
  EXPECT_EQ(decision.ask_again, absl::InfiniteFuture());
}

TEST(PolicyTest, OneClientsRequestsRunInOrderOfAdmission) {
  Tester t(NoGroups());
  std::mt19937 random(1);
  std::vector<uint64_t> ids;
  for (int i = 0; i < 50; ++i) {
    ids.push_back(t.Add({.flops = double(random() % 1000000000),
                         .head_dim = int64_t(1 + random() % 4)}));
  }
  EXPECT_EQ(t.All(), ids);
}

TEST(PolicyTest, ClientsTakeTurns) {
  Tester t(NoGroups());
  for (int i = 0; i < 3; ++i) t.Add({.client = "a"});  // 1, 2, 3
  for (int i = 0; i < 3; ++i) t.Add({.client = "b"});  // 4, 5, 6
  EXPECT_THAT(t.All(), ElementsAre(1, 4, 2, 5, 3, 6));
}

// Serves `steps` groups while every client keeps its queue full; returns what
// each client's (or priority's) FLOPs were.
template <typename Key>
std::map<Key, double> Saturate(Tester& t, int steps,
                               const std::vector<Tester::Spec>& backlog,
                               Key Tester::Spec::*key) {
  for (const Tester::Spec& spec : backlog) t.Add(spec);
  std::map<Key, double> served;
  for (int step = 0; step < steps; ++step) {
    for (uint64_t id : t.Next()) {
      const Tester::Spec spec = t.specs[id];
      served[spec.*key] += spec.flops;
      t.Add(spec);
    }
  }
  return served;
}

TEST(PolicyTest, SaturatingClientsGetEqualSharesByCostWhateverTheyAskFor) {
  for (int batch : {1, 16}) {
    PolicyOptions options;
    options.max_batch_requests = batch;
    Tester t(options);
    std::vector<Tester::Spec> backlog;
    // 64 connections' worth of one size against one's of another.
    for (int i = 0; i < 64; ++i) backlog.push_back({"many", 3e8});
    for (int i = 0; i < 20; ++i) backlog.push_back({"few", 1e8});
    for (int i = 0; i < 20; ++i) backlog.push_back({"large", 9e8});
    auto served = Saturate(t, 5000, backlog, &Tester::Spec::client);
    ASSERT_EQ(served.size(), 3);
    for (const auto& [client, flops] : served) {
      EXPECT_NEAR(flops / served["many"], 1, 0.1) << client;
    }
  }
}

TEST(PolicyTest, PrioritiesShareSixteenToFourToOne) {
  Tester t(NoGroups());
  std::vector<Tester::Spec> backlog;
  for (int i = 0; i < 10; ++i) {
    backlog.push_back({.flops = 2e8, .priority = Priority::kLow});
    backlog.push_back({.flops = 5e8, .priority = Priority::kNormal});
    backlog.push_back({.flops = 1e8, .priority = Priority::kHigh});
  }
  auto served = Saturate(t, 20000, backlog, &Tester::Spec::priority);
  const double low = served[Priority::kLow];
  EXPECT_NEAR(served[Priority::kNormal] / low, 4, 0.4);
  EXPECT_NEAR(served[Priority::kHigh] / low, 16, 1.6);
}

TEST(PolicyTest, HighPriorityRunsNextWhenItArrivesButLowNeverStarves) {
  Tester t(NoGroups());
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

TEST(PolicyTest, AClientThatWasIdleHasSavedUpNothing) {
  Tester t(NoGroups());
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

TEST(PolicyTest, AClientThatLeavesAndReturnsStillOwes) {
  Tester t(NoGroups());
  for (int i = 0; i < 10; ++i) t.Add({.client = "other", .flops = 1e8});
  t.Add({.client = "returns", .flops = 1e9});
  t.Next();
  ASSERT_THAT(t.Next(), ElementsAre(11));
  t.Add({.client = "returns", .flops = 1e9});
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(t.specs[t.Next().at(0)].client, "other") << i;
  }
}

TEST(PolicyTest, ClientsThatOweNothingAreForgotten) {
  Tester t(NoGroups());
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

TEST(PolicyTest, ClientsThatComeOnceCostBoundedMemory) {
  Tester t(NoGroups());
  // Each starts at the virtual time, which therefore never moves on.
  t.Add({.client = "first"});
  for (int i = 0; i < 10000; ++i) {
    t.Add({.client = std::to_string(i)});
    t.Next();
  }
  EXPECT_LE(t.policy.clients(), 1026);
}

TEST(PolicyTest, TinyRequestsPayForMoreThanTheirFlops) {
  Tester t(NoGroups());
  for (int i = 0; i < 1000; ++i) t.Add({.client = "tiny", .flops = 1});
  for (int i = 0; i < 10; ++i) t.Add({.client = "real", .flops = 9e6});
  int tiny = 0;
  for (int i = 0; i < 110; ++i) {
    for (uint64_t id : t.Next()) tiny += t.specs[id].client == "tiny";
  }
  EXPECT_NEAR(tiny, 100, 11);
}

// Groups.

TEST(PolicyTest, CompatibleRequestsJoinInOrderAcrossClientsAndPriorities) {
  Tester t({});
  t.Add({.client = "a"});                               // 1
  t.Add({.client = "a", .head_dim = 128});              // 2
  t.Add({.client = "b"});                               // 3
  t.Add({.client = "a"});                               // 4
  t.Add({.client = "c", .priority = Priority::kHigh});  // 5
  EXPECT_THAT(t.Next(), ElementsAre(5, 1, 3, 4));
  EXPECT_THAT(t.Next(), ElementsAre(2));
}

TEST(PolicyTest, RequestsThatDifferInWhatAGroupSharesNeverMeet) {
  const auto run = [](auto change) {
    Policy policy({});
    for (uint64_t id : {1, 2}) {
      Pending p;
      p.id = id;
      p.key = {Op::kForward, DType::kF16, 64, 64, {}};
      if (id == 2) change(p.key);
      policy.Add(std::move(p));
    }
    return policy.Next(kAnyLane, kNow).ids.size();
  };
  EXPECT_EQ(run([](GroupKey&) {}), 2);
  EXPECT_EQ(run([](GroupKey& key) { key.op = Op::kBackward; }), 1);
  EXPECT_EQ(run([](GroupKey& key) { key.dtype = DType::kBF16; }), 1);
  EXPECT_EQ(run([](GroupKey& key) { key.head_dim = 63; }), 1);
  EXPECT_EQ(run([](GroupKey& key) { key.value_dim = 65; }), 1);
  EXPECT_EQ(run([](GroupKey& key) { key.options.deterministic = true; }), 1);
  EXPECT_EQ(
      run([](GroupKey& key) { key.options.algorithm = Algorithm::kNaive; }), 1);
}

TEST(PolicyTest, GroupsStopAtTheirLimits) {
  PolicyOptions options;
  options.max_batch_requests = 3;
  options.max_batch_flops = 1e9;
  Tester count(options);
  for (int i = 0; i < 5; ++i) count.Add({});
  EXPECT_THAT(count.Next(), ElementsAre(1, 2, 3));
  EXPECT_THAT(count.Next(), ElementsAre(4, 5));

  Tester flops(options);
  flops.Add({.flops = 4e8});
  flops.Add({.flops = 4e8});
  flops.Add({.flops = 4e8});
  flops.Add({.flops = 1e6});
  EXPECT_THAT(flops.Next(), ElementsAre(1, 2));
  EXPECT_THAT(flops.Next(), ElementsAre(3, 4));

  Tester huge(options);
  huge.Add({.flops = 5e9});
  huge.Add({.flops = 1});
  EXPECT_THAT(huge.Next(), ElementsAre(1));
  EXPECT_THAT(huge.Next(), ElementsAre(2));
}

// Lanes.

TEST(PolicyTest, TheSmallLanePassesOverLargeRequestsEvenOfTheSameClient) {
  PolicyOptions options = NoGroups();
  options.small_request_flops = 100;
  Tester t(options);
  t.Add({.flops = 101});
  EXPECT_FALSE(t.policy.Has(kSmallLane));
  EXPECT_THAT(t.Next(kSmallLane), IsEmpty());
  t.Add({.flops = 100});
  t.Add({.flops = 50});
  EXPECT_TRUE(t.policy.Has(kSmallLane));
  EXPECT_THAT(t.Next(kSmallLane), ElementsAre(2));
  EXPECT_THAT(t.Next(), ElementsAre(1));
  EXPECT_THAT(t.Next(), ElementsAre(3));
}

TEST(PolicyTest, ALaneTakesOnlyWhatItsDeviceHasAKernelFor) {
  Tester t({});
  t.Add({.devices = 1});
  t.Add({.devices = 2});
  t.Add({.devices = 3});
  EXPECT_THAT(t.Next({.device = 2}), ElementsAre(2, 3));
  EXPECT_THAT(t.Next({.device = 2}), IsEmpty());
  EXPECT_THAT(t.Next({.device = 1}), ElementsAre(1));
}

TEST(PolicyTest, WhatNoDeviceIsLeftForIsTakenOut) {
  Tester t({});
  t.Add({.devices = 1});
  t.Add({.devices = 2});
  t.Add({.devices = 3});
  EXPECT_THAT(t.policy.TakeUnservable(2), ElementsAre(1));
  EXPECT_THAT(t.policy.TakeUnservable(0), ElementsAre(2, 3));
  EXPECT_EQ(t.policy.requests(), 0);
}

// Leaving and waiting.

TEST(PolicyTest, RemovedRequestsNeverRun) {
  Tester t({});
  for (int i = 0; i < 4; ++i) t.Add({.flops = 10});
  EXPECT_TRUE(t.policy.Remove(2));
  EXPECT_FALSE(t.policy.Remove(2));
  EXPECT_FALSE(t.policy.Remove(99));
  EXPECT_EQ(t.policy.requests(), 3);
  EXPECT_EQ(t.policy.flops(), 30);
  EXPECT_THAT(t.Next(), ElementsAre(1, 3, 4));
  EXPECT_EQ(t.policy.flops(), 0);
}

TEST(PolicyTest, ExpiredRequestsAreTakenOut) {
  Tester t({});
  t.Add({.deadline = kNow + absl::Seconds(2)});
  t.Add({.deadline = kNow + absl::Seconds(1)});
  t.Add({});
  EXPECT_THAT(t.policy.TakeExpired(kNow), IsEmpty());
  EXPECT_THAT(t.policy.TakeExpired(kNow + absl::Seconds(1)), ElementsAre(2));
  EXPECT_THAT(t.policy.TakeExpired(kNow + absl::Seconds(9)), ElementsAre(1));
  EXPECT_THAT(t.policy.TakeExpired(absl::InfiniteFuture()), IsEmpty());
  EXPECT_THAT(t.Next(), ElementsAre(3));
}

TEST(PolicyTest, WaitsForCompanyUpToTheDelayOrUntilTheGroupIsFull) {
  PolicyOptions options;
  options.max_batch_delay = absl::Seconds(1);
  options.max_batch_requests = 3;
  Tester t(options);
  t.Add({});
  Decision decision = t.policy.Next(kAnyLane, kNow);
  EXPECT_THAT(decision.ids, IsEmpty());
  EXPECT_EQ(decision.ask_again, kNow + absl::Seconds(1));
  t.Add({.admitted = kNow + absl::Milliseconds(500)});
  EXPECT_THAT(t.Next(kAnyLane, kNow + absl::Milliseconds(999)), IsEmpty());
  EXPECT_THAT(t.Next(kAnyLane, kNow + absl::Seconds(1)), ElementsAre(1, 2));
  // Full by count, and by cost.
  for (int i = 0; i < 3; ++i) t.Add({});
  EXPECT_THAT(t.Next(), ElementsAre(3, 4, 5));
  t.Add({.flops = 2e9});
  EXPECT_THAT(t.Next(), ElementsAre(6));
  t.Add({});
  EXPECT_THAT(t.Next(), IsEmpty());
  t.policy.StopWaiting();
  EXPECT_THAT(t.Next(), ElementsAre(7));
}

TEST(PolicyTest, OneThatWaitsForCompanyDoesNotHoldUpOthers) {
  PolicyOptions options;
  options.max_batch_delay = absl::Seconds(1);
  options.max_batch_requests = 2;
  Tester t(options);
  t.Add({.priority = Priority::kHigh, .head_dim = 32});
  t.Add({});
  t.Add({});
  EXPECT_THAT(t.Next(), ElementsAre(2, 3));
}

// Everything at once: what goes in comes out exactly once.
TEST(PolicyTest, NothingIsLostOrRunTwice) {
  std::mt19937 random(std::random_device{}());
  PolicyOptions options;
  options.small_request_flops = 500;
  options.max_batch_flops = 3000;
  options.max_batch_requests = 5;
  Tester t(options);
  std::vector<uint64_t> out;
  const auto leave = [&](const std::vector<uint64_t>& ids) {
    out.insert(out.end(), ids.begin(), ids.end());
  };
  absl::Time now = kNow;
  for (int i = 0; i < 20000; ++i) {
    now += absl::Milliseconds(1);
    switch (random() % 6) {
      case 0:
      case 1:
        t.Add({.client = std::to_string(random() % 5),
               .flops = double(random() % 1000),
               .priority = static_cast<Priority>(random() % 3),
               .head_dim = int64_t(random() % 2),
               .devices = 1 + random() % 3,
               .admitted = now,
               .deadline = now + absl::Milliseconds(random() % 500)});
        break;
      case 2:
        leave(t.Next({.device = 1, .small_only = true}, now));
        break;
      case 3:
        leave(t.Next({.device = uint64_t{1} << random() % 2}, now));
        break;
      case 4: {
        const uint64_t id = random() % (t.last_id + 1);
        if (t.policy.Remove(id)) leave({id});
        break;
      }
      default:
        leave(t.policy.TakeExpired(now));
    }
    ASSERT_EQ(out.size() + t.policy.requests(), t.last_id);
  }
  leave(t.policy.TakeUnservable(0));
  EXPECT_EQ(t.policy.clients(), 0);
  EXPECT_EQ(t.policy.flops(), 0);
  std::sort(out.begin(), out.end());
  ASSERT_EQ(out.size(), t.last_id);
  for (uint64_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i + 1);
}

}  // namespace
}  // namespace attnd::server
