#include "server/scheduling/policy.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/policy_testing.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PolicyTest, NothingPendingIsNothingToRun) {
  PolicyTester t(NoGroups());
  Decision decision = t.policy.Next(kAnyLane, kNow);
  EXPECT_THAT(decision.ids, IsEmpty());
  EXPECT_EQ(decision.ask_again, absl::InfiniteFuture());
}

TEST(PolicyTest, OneClientsRequestsRunInOrderOfAdmission) {
  PolicyTester t(NoGroups());
  std::mt19937 random(1);
  std::vector<uint64_t> ids;
  for (int i = 0; i < 50; ++i) {
    ids.push_back(t.Add({.flops = double(random() % 1000000000),
                         .head_dim = int64_t(1 + random() % 4)}));
  }
  EXPECT_EQ(t.All(), ids);
}

TEST(PolicyTest, CompatibleRequestsJoinInOrderAcrossClientsAndPriorities) {
  PolicyTester t({});
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
  EXPECT_EQ(run([](GroupKey& key) { key.options.plan = PlanKind::kHeads; }), 1);
  EXPECT_EQ(
      run([](GroupKey& key) { key.options.algorithm = Algorithm::kNaive; }), 1);
}

TEST(PolicyTest, GroupsStopAtTheirLimits) {
  PolicyOptions options;
  options.max_batch_requests = 3;
  options.max_batch_flops = 1e9;
  PolicyTester count(options);
  for (int i = 0; i < 5; ++i) count.Add({});
  EXPECT_THAT(count.Next(), ElementsAre(1, 2, 3));
  EXPECT_THAT(count.Next(), ElementsAre(4, 5));

  PolicyTester flops(options);
  flops.Add({.flops = 4e8});
  flops.Add({.flops = 4e8});
  flops.Add({.flops = 4e8});
  flops.Add({.flops = 1e6});
  EXPECT_THAT(flops.Next(), ElementsAre(1, 2));
  EXPECT_THAT(flops.Next(), ElementsAre(3, 4));

  PolicyTester huge(options);
  huge.Add({.flops = 5e9});
  huge.Add({.flops = 1});
  EXPECT_THAT(huge.Next(), ElementsAre(1));
  EXPECT_THAT(huge.Next(), ElementsAre(2));
}

// Lanes.

TEST(PolicyTest, TheSmallLanePassesOverLargeRequestsEvenOfTheSameClient) {
  PolicyOptions options = NoGroups();
  options.small_request_flops = 100;
  PolicyTester t(options);
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

TEST(PolicyTest, TheSmallLanePassesOverWhatHasManyBytesForFewFlops) {
  PolicyOptions options = NoGroups();
  options.small_request_flops = 100;
  options.small_request_bytes = 1000;
  PolicyTester t(options);
  t.Add({.flops = 1, .bytes = 1001});
  t.Add({.flops = 100, .bytes = 1000});
  EXPECT_THAT(t.Next(kSmallLane), ElementsAre(2));
  EXPECT_FALSE(t.policy.Has(kSmallLane));
  // It takes long to copy, but is not to be paused for others.
  const Decision decision = t.policy.Next(kAnyLane, kNow);
  EXPECT_THAT(decision.ids, ElementsAre(1));
  EXPECT_FALSE(decision.large);
}

TEST(PolicyTest, ALaneTakesOnlyWhatItsDeviceHasAKernelFor) {
  PolicyTester t({});
  t.Add({.devices = 1});
  t.Add({.devices = 2});
  t.Add({.devices = 3});
  EXPECT_THAT(t.Next({.device = 2}), ElementsAre(2, 3));
  EXPECT_THAT(t.Next({.device = 2}), IsEmpty());
  EXPECT_THAT(t.Next({.device = 1}), ElementsAre(1));
}

TEST(PolicyTest, WhatNoDeviceIsLeftForIsTakenOut) {
  PolicyTester t({});
  t.Add({.devices = 1});
  t.Add({.devices = 2});
  t.Add({.devices = 3});
  EXPECT_THAT(t.policy.TakeUnservable(2), ElementsAre(1));
  EXPECT_THAT(t.policy.TakeUnservable(0), ElementsAre(2, 3));
  EXPECT_EQ(t.policy.requests(), 0);
}

// Leaving and waiting.

TEST(PolicyTest, RemovedRequestsNeverRun) {
  PolicyTester t({});
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
  PolicyTester t({});
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
  PolicyTester t(options);
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
  PolicyTester t(options);
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
  PolicyTester t(options);
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
               .deadline = now + absl::Milliseconds(random() % 500),
               .bytes = int64_t(random() % 2) << 30});
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
