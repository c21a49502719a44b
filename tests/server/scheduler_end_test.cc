// How work ends early: deadlines, cancelling, draining.

#include <thread>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduling/scheduler.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/test_work.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;

constexpr absl::StatusCode kCancelled = absl::StatusCode::kCancelled;
constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
constexpr absl::StatusCode kExpired = absl::StatusCode::kDeadlineExceeded;

// Deadlines and cancelling.

TEST(SchedulerEndTest, RefusesWhatIsCancelledOrPastItsDeadline) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork late({.deadline = MonotonicNow()});
  EXPECT_EQ(scheduler->Submit(late.work()).code(), kExpired);
  TestWork cancelled({});
  scheduler->Cancel(cancelled.work());
  EXPECT_EQ(scheduler->Submit(cancelled.work()).code(), kCancelled);
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

TEST(SchedulerEndTest, CancellingQueuedWorkCompletesItAtOnce) {
  ManualBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork running({.q_len = 1}), queued({.q_len = 2}), next({.q_len = 3});
  ASSERT_EQ(scheduler->Submit(running.work()), absl::OkStatus());
  ManualBackend::Call call = backend.Await();
  ASSERT_EQ(scheduler->Submit(queued.work()), absl::OkStatus());
  ASSERT_EQ(scheduler->Submit(next.work()), absl::OkStatus());
  scheduler->Cancel(queued.work());
  EXPECT_EQ(queued.done_calls(), 1);
  EXPECT_EQ(queued.release_calls(), 1);
  EXPECT_EQ(queued.AwaitStatus().code(), kCancelled);
  EXPECT_EQ(queued.work()->charge, nullptr);
  scheduler->Cancel(queued.work());
  backend.Finish(call);
  EXPECT_THAT(backend.Await().q_lens, ElementsAre(3));
  backend.FinishAll();
  EXPECT_EQ(next.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(queued.done_calls(), 1);
}

TEST(SchedulerEndTest, CancellingRunningWorkReachesItsKernelButNotItsCompany) {
  ManualBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork blocker({}), cancelled({.q_len = 2}), company({.q_len = 3});
  ASSERT_EQ(scheduler->Submit(blocker.work()), absl::OkStatus());
  ManualBackend::Call call = backend.Await();
  ASSERT_EQ(scheduler->Submit(cancelled.work()), absl::OkStatus());
  ASSERT_EQ(scheduler->Submit(company.work()), absl::OkStatus());
  backend.Finish(call);
  call = backend.Await();
  ASSERT_THAT(call.q_lens, ElementsAre(2, 3));
  scheduler->Cancel(cancelled.work());
  EXPECT_TRUE(call.tokens[0]->cancelled());
  EXPECT_FALSE(call.tokens[1]->cancelled());
  EXPECT_EQ(cancelled.done_calls(), 0);
  backend.Finish(call);
  EXPECT_EQ(cancelled.AwaitStatus().code(), kCancelled);
  absl::StatusOr<WorkResult> result = company.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(Bytes(result->outputs[TensorId::kO].span()), company.q());
}

TEST(SchedulerEndTest, CancelledPastItsDeadlineIsDeadlineExceeded) {
  ManualBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork test({});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  ManualBackend::Call call = backend.Await();
  // As if it had just passed.
  test.work()->deadline = MonotonicNow();
  scheduler->Cancel(test.work());
  backend.Finish(call);
  EXPECT_EQ(test.AwaitStatus().code(), kExpired);
}

// Work that is admitted with little time left, however slow the machine is.
std::unique_ptr<TestWork> SubmitShortOfTime(Scheduler& scheduler,
                                            WorkShape shape) {
  for (absl::Duration left = absl::Milliseconds(20);; left *= 2) {
    shape.deadline = MonotonicNow() + left;
    auto test = std::make_unique<TestWork>(shape);
    const absl::Status status = scheduler.Submit(test->work());
    if (status.ok()) return test;
    EXPECT_EQ(status.code(), kExpired);
  }
}

TEST(SchedulerEndTest, QueuedWorkPastItsDeadlineNeverReachesTheDevice) {
  ManualBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork running({.q_len = 1}), next({.q_len = 3});
  ASSERT_EQ(scheduler->Submit(running.work()), absl::OkStatus());
  ManualBackend::Call call = backend.Await();
  auto late = SubmitShortOfTime(*scheduler, {.q_len = 2});
  absl::Notification never;
  while (MonotonicNow() < late->work()->deadline) {
    never.WaitForNotificationWithTimeout(late->work()->deadline -
                                         MonotonicNow());
  }
  ASSERT_EQ(scheduler->Submit(next.work()), absl::OkStatus());
  EXPECT_EQ(late->done_calls(), 1);
  EXPECT_EQ(late->AwaitStatus().code(), kExpired);
  EXPECT_EQ(late->release_calls(), 1);
  backend.Finish(call);
  EXPECT_THAT(backend.Await().q_lens, ElementsAre(3));
  backend.FinishAll();
  EXPECT_EQ(next.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerEndTest, NoLockIsHeldWhileDoneRuns) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork first({}), second({});
  absl::Notification submitted;
  first.work()->done = [&](absl::StatusOr<WorkResult> result) {
    EXPECT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(scheduler->Submit(second.work()), absl::OkStatus());
    scheduler->Cancel(second.work());
    EXPECT_EQ(second.done_calls(), 1);
    EXPECT_GE(scheduler->stats().running_requests, 1);
    submitted.Notify();
  };
  ASSERT_EQ(scheduler->Submit(first.work()), absl::OkStatus());
  submitted.WaitForNotification();
  EXPECT_EQ(second.AwaitStatus().code(), kCancelled);
}

// Draining.

TEST(SchedulerEndTest, DrainRefusesNewWorkAndFinishesWhatWasAdmitted) {
  ManualBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork running({}), queued({.dim = 4}), refused({});
  ASSERT_EQ(scheduler->Submit(running.work()), absl::OkStatus());
  ManualBackend::Call call = backend.Await();
  ASSERT_EQ(scheduler->Submit(queued.work()), absl::OkStatus());
  std::thread drain([&] { scheduler->Drain(absl::InfiniteFuture()); });
  // It drains once it refuses.
  absl::Status status;
  while ((status = scheduler->Submit(refused.work())).ok()) {
    scheduler->Cancel(refused.work());
    std::this_thread::yield();
    refused = TestWork({});
  }
  EXPECT_EQ(status.code(), kUnavailable);
  backend.FinishAll();
  drain.join();
  EXPECT_EQ(running.done_calls(), 1);
  EXPECT_EQ(queued.done_calls(), 1);
  EXPECT_EQ(running.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(queued.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerEndTest, DrainWithoutTimeLeftGivesTheRestUnavailable) {
  ManualBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork running({}), queued({.dim = 4});
  ASSERT_EQ(scheduler->Submit(running.work()), absl::OkStatus());
  ManualBackend::Call call = backend.Await();
  ASSERT_EQ(scheduler->Submit(queued.work()), absl::OkStatus());
  std::thread drain([&] { scheduler->Drain(absl::InfinitePast()); });
  EXPECT_EQ(queued.AwaitStatus().code(), kUnavailable);
  EXPECT_TRUE(call.tokens[0]->cancelled());
  EXPECT_EQ(running.done_calls(), 0);
  backend.Finish(call);
  drain.join();
  EXPECT_EQ(running.AwaitStatus().code(), kUnavailable);
  EXPECT_EQ(scheduler->stats().running_requests, 0);
  EXPECT_EQ(scheduler->stats().queued_requests, 0);
}

TEST(SchedulerEndTest, DrainEndsWaitsForCompany) {
  IdentityBackend backend;
  SchedulerOptions options;
  options.max_batch_delay = absl::Seconds(10);
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork test({});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  scheduler->Drain(absl::InfiniteFuture());
  EXPECT_EQ(test.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerEndTest, AnIdleSchedulerDrainsAndDrainsAgain) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  scheduler->Drain(absl::InfiniteFuture());
  scheduler->Drain(absl::InfinitePast());
  TestWork test({});
  EXPECT_EQ(scheduler->Submit(test.work()).code(), kUnavailable);
}

}  // namespace
}  // namespace attnd::server
