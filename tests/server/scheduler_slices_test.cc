// Large requests that run in slices: who gets a turn between, and how such a
// request ends. Devices are stepped by hand.

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/scheduling/scheduler.h"
#include "tests/hang_limit.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/test_work.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;

constexpr absl::StatusCode kCancelled = absl::StatusCode::kCancelled;
constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
constexpr absl::StatusCode kExpired = absl::StatusCode::kDeadlineExceeded;

// Queries of requests that are large, and of some that are not.
constexpr int64_t kLarge = 1000, kMedium = 100;

SchedulerOptions Slices(int lanes = 1) {
  SchedulerOptions options;
  options.lanes_per_device = lanes;
  options.small_request_flops = 100;
  options.max_batch_flops = 10000;
  options.slice_time = absl::Milliseconds(1);
  return options;
}

class SchedulerSlicesTest : public ::testing::Test {
 protected:
  SchedulerSlicesTest() { backend_.RunInParts(kLarge, 4); }

  void Submit(const TestWork& test) {
    ASSERT_EQ(scheduler_->Submit(test.work()), absl::OkStatus());
  }
  // Begins `large`, and pauses it for `other`, which then runs: that call.
  ManualBackend::Call PauseFor(const TestWork& large, const TestWork& other) {
    Submit(large);
    const ManualBackend::Call first = backend_.Await();
    EXPECT_THAT(first.q_lens, ElementsAre(kLarge));
    Submit(other);
    backend_.FinishAndPause(first);
    return backend_.Await();
  }
  // Waits until nothing is charged any more: a run that will not go on is ended
  // by a lane.
  void AwaitNothingHeld() {
    const absl::Time end = MonotonicNow() + testing::kHangLimit;
    while (scheduler_->stats().account_bytes > 0) {
      ASSERT_LT(MonotonicNow(), end);
      std::this_thread::yield();
    }
  }
  void ExpectRight(TestWork& test) {
    absl::StatusOr<WorkResult> result = test.Await();
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(Bytes(result->outputs[TensorId::kO].span()), test.q());
    EXPECT_EQ(test.done_calls(), 1);
    EXPECT_EQ(test.release_calls(), 1);
  }

  ManualBackend backend_;
  std::unique_ptr<Scheduler> scheduler_ = MakeScheduler(Slices(), {&backend_});
};

TEST_F(SchedulerSlicesTest, AnotherClientsRequestRunsBetweenTwoSlices) {
  TestWork large({.q_len = kLarge}),
      medium({.q_len = kMedium, .client = "other"});
  const ManualBackend::Call between = PauseFor(large, medium);
  EXPECT_THAT(between.q_lens, ElementsAre(kMedium));
  EXPECT_EQ(scheduler_->stats().queued_requests, 1);
  EXPECT_EQ(scheduler_->stats().running_requests, 1);
  EXPECT_EQ(scheduler_->stats().queued_flops,
            large.work()->request->flops() * 3 / 4);
  backend_.Finish(between);
  ExpectRight(medium);
  const ManualBackend::Call second = backend_.Await();
  EXPECT_THAT(second.q_lens, ElementsAre(kLarge));
  EXPECT_EQ(second.part, 1);
  EXPECT_EQ(large.done_calls(), 0);
  backend_.FinishAll();
  ExpectRight(large);
}

TEST_F(SchedulerSlicesTest, SoDoesOneOfItsOwnClient) {
  TestWork large({.q_len = kLarge}), medium({.q_len = kMedium});
  const ManualBackend::Call between = PauseFor(large, medium);
  EXPECT_THAT(between.q_lens, ElementsAre(kMedium));
  backend_.FinishAll();
  ExpectRight(medium);
  ExpectRight(large);
}

TEST_F(SchedulerSlicesTest, WaitingForOthersCountsAsQueueTime) {
  TestWork large({.q_len = kLarge}), medium({.q_len = kMedium});
  const ManualBackend::Call between = PauseFor(large, medium);
  const absl::Time begun = MonotonicNow();
  while (MonotonicNow() < begun + absl::Milliseconds(2)) {
  }
  const absl::Duration between_time = MonotonicNow() - begun;
  backend_.FinishAll();
  absl::StatusOr<WorkResult> result = large.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_GE(result->phases.queue, between_time);
}

TEST_F(SchedulerSlicesTest, TwoLargeOnesTakeTurns) {
  TestWork first({.q_len = kLarge}),
      second({.q_len = kLarge + 1, .client = "other"});
  ManualBackend::Call call = PauseFor(first, second);
  EXPECT_THAT(call.q_lens, ElementsAre(kLarge + 1));
  backend_.FinishAndPause(call);
  call = backend_.Await();
  EXPECT_THAT(call.q_lens, ElementsAre(kLarge));
  EXPECT_EQ(call.part, 1);
  backend_.FinishAll();
  ExpectRight(first);
  ExpectRight(second);
}

// As many have a stream as can be paused.
TEST_F(SchedulerSlicesTest, NoMoreLargeOnesBeginThanMayBePaused) {
  TestWork first({.q_len = kLarge}), second({.q_len = kLarge + 1}),
      third({.q_len = kLarge + 2}), medium({.q_len = kMedium});
  ManualBackend::Call call = PauseFor(first, second);
  Submit(third);
  Submit(medium);
  backend_.FinishAndPause(call);
  call = backend_.Await();
  EXPECT_THAT(call.q_lens, ElementsAre(kLarge));
  backend_.FinishAndPause(call);
  // The third waits, and others pass.
  call = backend_.Await();
  EXPECT_THAT(call.q_lens, ElementsAre(kMedium));
  backend_.Finish(call);
  call = backend_.Await();
  EXPECT_THAT(call.q_lens, ElementsAre(kLarge + 1));
  backend_.FinishAll();
  for (TestWork* test : {&first, &second, &third, &medium}) ExpectRight(*test);
}

TEST_F(SchedulerSlicesTest, CancelledWhilePausedItEndsAtOnce) {
  for (int i = 0; i < 5; ++i) {
    TestWork large({.q_len = kLarge}), medium({.q_len = kMedium});
    const ManualBackend::Call between = PauseFor(large, medium);
    scheduler_->Cancel(large.work());
    EXPECT_EQ(large.done_calls(), 1);
    EXPECT_EQ(large.AwaitStatus().code(), kCancelled);
    EXPECT_EQ(scheduler_->stats().queued_requests, 0);
    backend_.Finish(between);
    ExpectRight(medium);
    // Its stream is there for the next.
    AwaitNothingHeld();
  }
}

TEST_F(SchedulerSlicesTest, AnIdleLaneEndsWhatWasCancelledWhilePaused) {
  scheduler_ = MakeScheduler(Slices(/*lanes=*/2), {&backend_});
  TestWork large({.q_len = kLarge}), medium({.q_len = kMedium});
  const ManualBackend::Call between = PauseFor(large, medium);
  scheduler_->Cancel(large.work());
  EXPECT_EQ(large.AwaitStatus().code(), kCancelled);
  // While the other lane is busy.
  const absl::Time end = MonotonicNow() + testing::kHangLimit;
  const int64_t medium_bytes = medium.work()->charge->bytes();
  while (scheduler_->stats().account_bytes > medium_bytes) {
    ASSERT_LT(MonotonicNow(), end);
    std::this_thread::yield();
  }
  backend_.Finish(between);
  ExpectRight(medium);
}

TEST_F(SchedulerSlicesTest, PastItsDeadlineWhilePausedItDoesNotGoOn) {
  // Long enough to begin, however slow the machine; then it is made short.
  TestWork large(
      {.q_len = kLarge, .deadline = MonotonicNow() + 2 * testing::kHangLimit}),
      medium({.q_len = kMedium});
  Submit(large);
  const ManualBackend::Call first = backend_.Await();
  Submit(medium);
  large.work()->deadline = MonotonicNow();
  backend_.FinishAndPause(first);
  EXPECT_EQ(large.AwaitStatus().code(), kExpired);
  const ManualBackend::Call between = backend_.Await();
  EXPECT_THAT(between.q_lens, ElementsAre(kMedium));
  backend_.Finish(between);
  ExpectRight(medium);
  AwaitNothingHeld();
}

TEST_F(SchedulerSlicesTest, CancelledWhileItRunsItIsNotPaused) {
  TestWork large({.q_len = kLarge}), medium({.q_len = kMedium});
  Submit(large);
  const ManualBackend::Call first = backend_.Await();
  Submit(medium);
  scheduler_->Cancel(large.work());
  EXPECT_EQ(large.done_calls(), 0);
  backend_.FinishAndPause(first);
  EXPECT_EQ(large.AwaitStatus().code(), kCancelled);
  EXPECT_THAT(backend_.Await().q_lens, ElementsAre(kMedium));
  backend_.FinishAll();
  ExpectRight(medium);
}

TEST_F(SchedulerSlicesTest, ItGoesOnWhileTheServerDrains) {
  TestWork large({.q_len = kLarge}), medium({.q_len = kMedium});
  PauseFor(large, medium);
  std::thread drain([this] { scheduler_->Drain(absl::InfiniteFuture()); });
  backend_.FinishAll();
  drain.join();
  ExpectRight(large);
  ExpectRight(medium);
}

TEST_F(SchedulerSlicesTest, ADrainThatHasNoTimeEndsIt) {
  TestWork large({.q_len = kLarge}), medium({.q_len = kMedium});
  PauseFor(large, medium);
  std::thread drain([this] { scheduler_->Drain(absl::InfinitePast()); });
  EXPECT_EQ(large.AwaitStatus().code(), kUnavailable);
  backend_.FinishAll();
  drain.join();
  EXPECT_EQ(medium.AwaitStatus().code(), kUnavailable);
  scheduler_.reset();
  EXPECT_EQ(backend_.memory().live_bytes(), 0);
}

TEST_F(SchedulerSlicesTest, WhenItsDeviceBreaksItIsUnavailable) {
  TestWork large({.q_len = kLarge}), medium({.q_len = kMedium});
  const ManualBackend::Call between = PauseFor(large, medium);
  backend_.Finish(between, absl::InternalError("gone"));
  EXPECT_EQ(medium.AwaitStatus().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(large.AwaitStatus().code(), kUnavailable);
  EXPECT_EQ(scheduler_->stats().account_bytes, 0);
  scheduler_.reset();
  EXPECT_EQ(backend_.memory().live_bytes(), 0);
}

TEST_F(SchedulerSlicesTest, AFaultInALaterSliceFailsIt) {
  TestWork large({.q_len = kLarge}), medium({.q_len = kMedium});
  backend_.Finish(PauseFor(large, medium));
  ExpectRight(medium);
  backend_.Finish(backend_.Await(), absl::InternalError("gone"));
  EXPECT_EQ(large.AwaitStatus().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(scheduler_->stats().device_in_service, ElementsAre(false));
  EXPECT_EQ(scheduler_->stats().account_bytes, 0);
}

// The device turns out to be broken when its cancelled run is ended.
TEST_F(SchedulerSlicesTest, AFaultOfARunThatWillNotGoOnIsAFault) {
  scheduler_ = MakeScheduler(Slices(/*lanes=*/2), {&backend_});
  TestWork large({.q_len = kLarge}), medium({.q_len = kMedium});
  const ManualBackend::Call between = PauseFor(large, medium);
  backend_.FailWaits(absl::InternalError("gone"));
  scheduler_->Cancel(large.work());
  EXPECT_EQ(large.AwaitStatus().code(), kCancelled);
  const absl::Time end = MonotonicNow() + testing::kHangLimit;
  while (scheduler_->stats().device_in_service[0]) {
    ASSERT_LT(MonotonicNow(), end);
    std::this_thread::yield();
  }
  backend_.Finish(between);
  EXPECT_EQ(medium.AwaitStatus().code(), absl::StatusCode::kInternal);
}

// A device that is idle does not take what another one has begun.
TEST_F(SchedulerSlicesTest, ItStaysOnItsDevice) {
  ManualBackend one(1);
  scheduler_ = MakeScheduler(Slices(), {&backend_, &one});
  TestWork large({.q_len = kLarge}), medium({.q_len = kMedium});
  TestWork busy({}), after({});
  busy.work()->devices = after.work()->devices = 2;
  Submit(busy);
  const ManualBackend::Call holds = one.Await();
  // The large one is for either, and finds the first idle.
  medium.work()->devices = 1;
  const ManualBackend::Call between = PauseFor(large, medium);
  one.Finish(holds);
  Submit(after);
  one.Finish(one.Await());
  ExpectRight(after);
  EXPECT_FALSE(one.HasBegun());
  backend_.Finish(between);
  const ManualBackend::Call second = backend_.Await();
  EXPECT_EQ(second.part, 1);
  backend_.FinishAll();
  EXPECT_EQ(large.Await()->device, "fake:0 identity");
  one.FinishAll();
}

// Large and other requests on a real processor: paused or not, bits are the
// same.
TEST(SchedulerSlicesCpuTest, ResultsAreThoseOfARunWithoutAPause) {
  auto backend = CreateCpuBackend({.threads = 2});
  ASSERT_EQ(backend.status(), absl::OkStatus());
  for (const Op op : {Op::kForward, Op::kBackward}) {
    const WorkShape shape = {
        .op = op, .q_len = 3000, .kv_len = 3000, .heads = 2, .dim = 64};
    SchedulerOptions options;
    options.lanes_per_device = 1;
    options.slice_time = absl::Milliseconds(1);
    auto scheduler = MakeScheduler(options, {backend->get()});
    TestWork large(shape);
    const TensorId id = op == Op::kForward ? TensorId::kO : TensorId::kDQ;
    std::vector<std::byte> first;
    for (const bool others : {false, true}) {
      TestWork same(shape, large);
      ASSERT_EQ(scheduler->Submit(same.work()), absl::OkStatus());
      while (others && same.done_calls() == 0) {
        TestWork small({.q_len = 32, .kv_len = 32, .client = "other"});
        ASSERT_EQ(scheduler->Submit(small.work()), absl::OkStatus());
        ASSERT_EQ(small.AwaitStatus(), absl::OkStatus());
      }
      absl::StatusOr<WorkResult> result = same.Await();
      ASSERT_EQ(result.status(), absl::OkStatus());
      std::vector<std::byte> bits = Bytes(result->outputs[id].span());
      if (others) {
        EXPECT_TRUE(bits == first);
      }
      first = std::move(bits);
    }
  }
}

}  // namespace
}  // namespace attnd::server
