// Requests of which little goes through the host's hands begin on the thread
// that submits them, and go on on a lane's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "server/scheduling/scheduler.h"
#include "tests/hang_limit.h"
#include "tests/server/fakes/apart_backend.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/test_regions.h"
#include "tests/server/fakes/test_work.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {
namespace {

using Stage = IdentityBackend::Stage;

constexpr int64_t kRegionBytes = int64_t{1} << 20;

// Remembers which thread launched and which waited.
class RememberingBackend : public ApartBackend {
 public:
  absl::Status On(Stage stage, Group) override {
    if (stage == Stage::kRun) {
      launched_on = std::this_thread::get_id();
      if (broken) return absl::InternalError("broken");
    }
    if (stage == Stage::kWait) waited_on = std::this_thread::get_id();
    return absl::OkStatus();
  }

  std::atomic<std::thread::id> launched_on, waited_on;
  std::atomic<bool> broken = false;
};

std::shared_ptr<TestRegion> PlaceIn(TestWork& test) {
  auto region = TestRegion::OfHost("r", kRegionBytes);
  MoveIntoRegion(region, region->host().data(), *test.work(), TensorId::kO);
  return region;
}

// Submits what `make` makes until some has begun on this thread: a lane is idle
// only once its thread has looked for work.
template <typename Make>
void ExpectBeginsHere(RememberingBackend& backend, Scheduler& scheduler,
                      Make make) {
  const absl::Time end = MonotonicNow() + testing::kHangLimit;
  do {
    ASSERT_LT(MonotonicNow(), end) << "nothing begins here";
    const std::unique_ptr<TestWork> test = make();
    ASSERT_EQ(scheduler.Submit(test->work()), absl::OkStatus());
    ASSERT_EQ(test->AwaitStatus(), absl::OkStatus());
    EXPECT_NE(backend.waited_on.load(), std::this_thread::get_id());
    EXPECT_NE(test->done_on(), std::this_thread::get_id());
  } while (backend.launched_on.load() != std::this_thread::get_id());
}

TEST(SchedulerBeginHereTest, WhatLiesInARegionBeginsWhereItIsSubmitted) {
  RememberingBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  std::shared_ptr<TestRegion> region;
  int64_t at = 0;
  std::vector<std::byte> q;
  ExpectBeginsHere(backend, *scheduler, [&] {
    auto test =
        std::make_unique<TestWork>(WorkShape{.q_len = 1000, .kv_len = 100});
    region = PlaceIn(*test);
    at = test->work()->placed[TensorId::kO].offset;
    q = test->q();
    return test;
  });
  EXPECT_EQ(std::memcmp(region->host().data() + at, q.data(), q.size()), 0);
}

// The lane has it by then.
TEST(SchedulerBeginHereTest, WhatBeginsHereIsToldOfHere) {
  RememberingBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  std::atomic<std::thread::id> told_on;
  ExpectBeginsHere(backend, *scheduler, [&] {
    auto test = std::make_unique<TestWork>(WorkShape{.q_len = 1000});
    PlaceIn(*test);
    told_on = std::thread::id();
    test->work()->under_way = [&] { told_on = std::this_thread::get_id(); };
    return test;
  });
  EXPECT_EQ(told_on.load(), std::this_thread::get_id());
}

TEST(SchedulerBeginHereTest, WhatFailsAtTheBeginningIsNotUnderWay) {
  RememberingBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  backend.memory().set_limit_bytes(0);
  TestWork test({});
  test.work()->under_way = [] { ADD_FAILURE() << "has no memory"; };
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  EXPECT_EQ(test.AwaitStatus().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SchedulerBeginHereTest, WhatIsToBeCopiedBeginsOnALane) {
  RememberingBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  // Its Q is too large; its O is.
  TestWork sent({.q_len = 5000}), answered({.q_len = 5000});
  const auto region = PlaceIn(answered);
  answered.work()->placed = {};
  for (TestWork* test : {&sent, &answered}) {
    ASSERT_EQ(scheduler->Submit(test->work()), absl::OkStatus());
    ASSERT_EQ(test->AwaitStatus(), absl::OkStatus());
    EXPECT_NE(backend.launched_on.load(), std::this_thread::get_id());
  }
  // A small one does not wait for a thread to wake up.
  ExpectBeginsHere(backend, *scheduler,
                   [] { return std::make_unique<TestWork>(WorkShape{}); });
}

TEST(SchedulerBeginHereTest, ADeviceThatTheHostComputesForBeginsOnALane) {
  class Remembers : public IdentityBackend {
   public:
    absl::Status On(Stage stage, Group) override {
      if (stage == Stage::kRun) launched_on = std::this_thread::get_id();
      return absl::OkStatus();
    }
    std::atomic<std::thread::id> launched_on;
  } device;
  auto scheduler = MakeScheduler({}, {&device});
  TestWork test({.q_len = 100});
  PlaceIn(test);
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  ASSERT_EQ(test.AwaitStatus(), absl::OkStatus());
  EXPECT_NE(device.launched_on.load(), std::this_thread::get_id());
}

TEST(SchedulerBeginHereTest, ADeviceThatBreaksAtTheBeginningLeavesService) {
  RememberingBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  backend.broken = true;
  TestWork test({.q_len = 100}), next({.q_len = 100});
  PlaceIn(test);
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  EXPECT_EQ(test.AwaitStatus().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(test.done_calls(), 1);
  EXPECT_FALSE(scheduler->stats().device_in_service[0]);
  EXPECT_EQ(scheduler->Submit(next.work()).code(),
            absl::StatusCode::kUnavailable);
}

TEST(SchedulerBeginHereTest, EachIsDoneOnceWhateverHappensMeanwhile) {
  RememberingBackend backend;
  SchedulerOptions options;
  options.lanes_per_device = 3;
  auto scheduler = MakeScheduler(options, {&backend});
  constexpr int kThreads = 4, kWorks = 150;
  std::vector<std::thread> threads;
  std::atomic<int> done = 0, refused = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<std::unique_ptr<TestWork>> works;
      for (int i = 0; i < kWorks; ++i) {
        auto test = std::make_unique<TestWork>(
            WorkShape{.q_len = static_cast<int64_t>(random() % 3000)});
        if (random() % 4 != 0) PlaceIn(*test);
        if (!scheduler->Submit(test->work()).ok()) {
          ++refused;
          continue;
        }
        if (random() % 4 == 0) scheduler->Cancel(test->work());
        works.push_back(std::move(test));
      }
      for (const auto& test : works) {
        test->AwaitStatus().IgnoreError();
        done += test->done_calls();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done + refused, kThreads * kWorks);
  scheduler->Drain(absl::InfinitePast());
  EXPECT_EQ(scheduler->stats().running_requests, 0);
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

}  // namespace
}  // namespace attnd::server
