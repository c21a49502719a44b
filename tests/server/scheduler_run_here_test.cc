// Tiny requests run on the thread that submits them, while a lane is idle.

#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/scheduling/scheduler.h"
#include "tests/hang_limit.h"
#include "tests/server/fakes/fault_backend.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/test_work.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {
namespace {

SchedulerOptions RunHere() {
  SchedulerOptions options;
  options.run_here_flops = 1e5;
  return options;
}

// Remembers which thread ran each group.
class ThreadBackend : public IdentityBackend {
 public:
  absl::Status On(Stage stage, Group) override {
    if (stage == Stage::kRun) ran_on_ = std::this_thread::get_id();
    return absl::OkStatus();
  }
  std::thread::id ran_on() const { return ran_on_; }

 private:
  std::atomic<std::thread::id> ran_on_{};
};

// Submits such work until some has run on this thread: a lane is idle only once
// its thread has looked for work.
void WaitForIdleLane(Scheduler& scheduler,
                     const WorkShape& tiny = {.q_len = 4, .kv_len = 4}) {
  const absl::Time end = MonotonicNow() + testing::kHangLimit;
  std::thread::id ran_on;
  while (ran_on != std::this_thread::get_id()) {
    ASSERT_LT(MonotonicNow(), end) << "nothing runs here";
    TestWork test(tiny);
    ASSERT_EQ(scheduler.Submit(test.work()), absl::OkStatus());
    ASSERT_EQ(test.AwaitStatus(), absl::OkStatus());
    ran_on = test.done_on();
  }
}

TEST(SchedulerRunHereTest, TinyWorkIsDoneBeforeSubmitReturns) {
  ThreadBackend backend;
  auto scheduler = MakeScheduler(RunHere(), {&backend});
  WaitForIdleLane(*scheduler);
  for (int i = 0; i < 3; ++i) {
    TestWork test({.q_len = 4, .kv_len = 4});
    ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
    EXPECT_EQ(test.done_calls(), 1);
    EXPECT_EQ(test.release_calls(), 1);
    absl::StatusOr<WorkResult> result = test.Await();
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(Bytes(result->outputs[TensorId::kO].span()), test.q());
    EXPECT_EQ(backend.ran_on(), std::this_thread::get_id());
  }
  // A lane may still be at the end of what it ran first.
  scheduler->Drain(absl::InfiniteFuture());
  EXPECT_EQ(scheduler->stats().running_requests, 0);
}

TEST(SchedulerRunHereTest, CostlyOrLargeWorkRunsOnALane) {
  ThreadBackend backend;
  auto scheduler = MakeScheduler(RunHere(), {&backend});
  WaitForIdleLane(*scheduler);
  // More FLOPs; and few FLOPs over more bytes.
  for (const WorkShape& shape : {WorkShape{.q_len = 100, .kv_len = 100},
                                 WorkShape{.q_len = 1 << 12, .kv_len = 0}}) {
    TestWork test(shape);
    ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
    ASSERT_EQ(test.AwaitStatus(), absl::OkStatus());
    EXPECT_NE(backend.ran_on(), std::this_thread::get_id());
  }
}

// Whatever the CPU's kernels say they may need of scratch, what is cheapest
// runs here: each dtype, forward and backward.
TEST(SchedulerRunHereTest, TheSmallestRequestsOfACpuRunHere) {
  auto backend = CreateCpuBackend({});
  ASSERT_EQ(backend.status(), absl::OkStatus());
  SchedulerOptions options;
  options.run_here_flops = kRunHereFlops;
  auto scheduler = MakeScheduler(options, {backend->get()});
  for (Op op : {Op::kForward, Op::kBackward}) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(absl::StrCat("op ", static_cast<int>(op), ", ",
                                SizeOf(dtype), " bytes an element"));
      WaitForIdleLane(*scheduler, {.op = op, .dtype = dtype, .dim = 128});
    }
  }
}

TEST(SchedulerRunHereTest, ReferenceAlgorithmsRunOnALane) {
  ThreadBackend backend;
  auto scheduler = MakeScheduler(RunHere(), {&backend});
  for (Algorithm algorithm : {Algorithm::kNaive, Algorithm::kOnlineSoftmax,
                              Algorithm::kFlashAttention2}) {
    WaitForIdleLane(*scheduler);
    TestWork test({.q_len = 1, .kv_len = 1, .algorithm = algorithm});
    ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
    ASSERT_EQ(test.AwaitStatus(), absl::OkStatus());
    EXPECT_NE(backend.ran_on(), std::this_thread::get_id());
  }
}

// Remembers which threads ran anything.
class ThreadsBackend : public ManualBackend {
 public:
  absl::Status On(Stage stage, Group group) override {
    if (stage == Stage::kRun) {
      std::lock_guard lock(mutex_);
      ran_on_.insert(std::this_thread::get_id());
    }
    return ManualBackend::On(stage, group);
  }
  std::set<std::thread::id> ran_on() {
    std::lock_guard lock(mutex_);
    return ran_on_;
  }

 private:
  std::mutex mutex_;
  std::set<std::thread::id> ran_on_;
};

// Costly work waits, since the lane left for it takes only small requests; that
// one is idle, and what comes now would run here if it were alone.
TEST(SchedulerRunHereTest, TinyWorkBesideQueuedWorkRunsOnALane) {
  ThreadsBackend backend;
  SchedulerOptions options = RunHere();
  options.small_request_flops = 2e5;
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork running({.q_len = 100, .kv_len = 100});
  ASSERT_EQ(scheduler->Submit(running.work()), absl::OkStatus());
  const ManualBackend::Call first = backend.Await();
  TestWork waiting({.q_len = 101, .kv_len = 100});
  ASSERT_EQ(scheduler->Submit(waiting.work()), absl::OkStatus());
  TestWork tiny({.q_len = 4, .kv_len = 4});
  ASSERT_EQ(scheduler->Submit(tiny.work()), absl::OkStatus());
  const ManualBackend::Call second = backend.Await();
  EXPECT_EQ(second.q_lens, std::vector<int64_t>{4});
  backend.FinishAll();
  EXPECT_EQ(tiny.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(running.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(waiting.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(backend.ran_on().count(std::this_thread::get_id()), 0);
}

// Work that waits for company must not be run by the tiny request that is its
// company.
TEST(SchedulerRunHereTest, TinyWorkDoesNotRunTheGroupThatItCompletes) {
  SchedulerOptions options = RunHere();
  options.lanes_per_device = 1;
  options.max_batch_requests = 2;
  options.max_batch_delay = absl::Seconds(10);
  ThreadBackend backend;
  auto scheduler = MakeScheduler(options, {&backend});
  for (int i = 0; i < 100; ++i) {
    TestWork costly({.q_len = 100, .kv_len = 100});
    ASSERT_EQ(scheduler->Submit(costly.work()), absl::OkStatus());
    TestWork tiny({.q_len = 4, .kv_len = 4});
    ASSERT_EQ(scheduler->Submit(tiny.work()), absl::OkStatus());
    ASSERT_EQ(costly.AwaitStatus(), absl::OkStatus());
    ASSERT_EQ(tiny.AwaitStatus(), absl::OkStatus());
    ASSERT_NE(backend.ran_on(), std::this_thread::get_id());
  }
}

TEST(SchedulerRunHereTest, WithoutTheOptionAllRunOnLanes) {
  ThreadBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork test({.q_len = 4, .kv_len = 4});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  ASSERT_EQ(test.AwaitStatus(), absl::OkStatus());
  EXPECT_NE(backend.ran_on(), std::this_thread::get_id());
}

TEST(SchedulerRunHereTest, ALaneThatLentItsStreamRunsLaterWork) {
  ThreadBackend backend;
  SchedulerOptions options = RunHere();
  options.lanes_per_device = 1;
  auto scheduler = MakeScheduler(options, {&backend});
  for (int i = 0; i < 20; ++i) {
    WaitForIdleLane(*scheduler);
    TestWork costly({.q_len = 100, .kv_len = 100});
    ASSERT_EQ(scheduler->Submit(costly.work()), absl::OkStatus());
    ASSERT_EQ(costly.AwaitStatus(), absl::OkStatus());
    EXPECT_NE(backend.ran_on(), std::this_thread::get_id());
  }
}

TEST(SchedulerRunHereTest, AFaultThereTakesTheDeviceOutOfService) {
  FaultBackend backend;
  backend.Fail(IdentityBackend::Stage::kRun, absl::InternalError("broken"));
  auto scheduler = MakeScheduler(RunHere(), {&backend});
  TestWork test({.q_len = 4, .kv_len = 4});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  EXPECT_FALSE(test.AwaitStatus().ok());
  EXPECT_THAT(scheduler->stats().device_in_service,
              ::testing::ElementsAre(false));
}

// Submitters that run work, lanes that run work and a drain, all at once:
// everything admitted completes once, and the scheduler comes to its end.
TEST(SchedulerRunHereTest, ManySubmittersAndLanesShareStreams) {
  for (absl::Duration delay : {absl::ZeroDuration(), absl::Microseconds(200)}) {
    IdentityBackend backend;
    SchedulerOptions options = RunHere();
    options.max_batch_delay = delay;
    auto scheduler = MakeScheduler(options, {&backend});
    std::vector<std::vector<std::pair<std::unique_ptr<TestWork>, bool>>> all(4);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        for (int i = 0; i < 500; ++i) {
          auto test = std::make_unique<TestWork>(
              WorkShape{.q_len = random() % 8 == 0 ? 200 : 2,
                        .kv_len = 100,
                        .client = std::to_string(t)});
          const bool admitted = scheduler->Submit(test->work()).ok();
          all[t].emplace_back(std::move(test), admitted);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    scheduler->Drain(absl::InfiniteFuture());
    for (const auto& of_thread : all) {
      for (const auto& [test, admitted] : of_thread) {
        ASSERT_EQ(test->done_calls(), admitted ? 1 : 0);
      }
    }
    EXPECT_EQ(scheduler->stats().running_requests, 0);
    EXPECT_EQ(scheduler->stats().queued_requests, 0);
  }
}

}  // namespace
}  // namespace attnd::server
