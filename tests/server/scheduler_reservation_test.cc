// Room that is made for a request before its inputs are here.

#include <memory>
#include <optional>
#include <utility>

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

absl::StatusOr<Reservation> Admit(Scheduler& scheduler, const TestWork& test) {
  const Work& work = *test.work();
  return scheduler.Admit(*work.request, work.client, work.deadline);
}

TEST(SchedulerReservationTest, HoldsItsBytesUntilItsWorkIsDone) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork test({.q_len = 5});
  auto reservation = Admit(*scheduler, test);
  ASSERT_EQ(reservation.status(), absl::OkStatus());
  EXPECT_EQ(scheduler->stats().account_bytes, reservation->footprint().bytes());
  EXPECT_EQ(scheduler->stats().queued_requests, 0);
  EXPECT_EQ(scheduler->stats().running_requests, 0);
  ASSERT_EQ(scheduler->Submit(*std::move(reservation), test.work()),
            absl::OkStatus());
  EXPECT_EQ(test.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

TEST(SchedulerReservationTest, GivenUpItReleasesAllThatItHeld) {
  IdentityBackend backend;
  SchedulerOptions options;
  options.max_queue_requests = 1;
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork first({}), second({});
  std::optional<Reservation> moved;
  {
    auto held = Admit(*scheduler, first);
    ASSERT_EQ(held.status(), absl::OkStatus());
    moved = *std::move(held);
  }
  ExpectRetry(Admit(*scheduler, second).status());
  {
    const Reservation given_up = *std::move(moved);
    EXPECT_GT(scheduler->stats().account_bytes, 0);
  }
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
  EXPECT_EQ(Admit(*scheduler, second).status(), absl::OkStatus());
}

// What was sent is not refused because others came before it.
TEST(SchedulerReservationTest, KeepsItsPlaceWhileTheQueueFillsUp) {
  ManualBackend backend;
  SchedulerOptions options = OneLane();
  options.max_queue_requests = 2;
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork running({}), late({.client = "a"}), queued({.client = "b"}),
      refused({.client = "c"});
  ASSERT_EQ(scheduler->Submit(running.work()), absl::OkStatus());
  backend.Await();
  auto reservation = Admit(*scheduler, late);
  ASSERT_EQ(reservation.status(), absl::OkStatus());
  ASSERT_EQ(scheduler->Submit(queued.work()), absl::OkStatus());
  ExpectRetry(scheduler->Submit(refused.work()));
  EXPECT_EQ(scheduler->Submit(*std::move(reservation), late.work()),
            absl::OkStatus());
  backend.FinishAll();
  EXPECT_EQ(late.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerReservationTest, ADrainDoesNotWaitForItAndRefusesItsWork) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork test({});
  auto reservation = Admit(*scheduler, test);
  ASSERT_EQ(reservation.status(), absl::OkStatus());
  scheduler->Drain(absl::InfiniteFuture());
  EXPECT_EQ(scheduler->Submit(*std::move(reservation), test.work()).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(test.done_calls(), 0);
  EXPECT_EQ(test.release_calls(), 0);
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

TEST(SchedulerReservationTest, SubmitLooksAtWhatHappenedMeanwhile) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork cancelled({}), late({});
  auto first = Admit(*scheduler, cancelled), second = Admit(*scheduler, late);
  scheduler->Cancel(cancelled.work());
  EXPECT_EQ(scheduler->Submit(*std::move(first), cancelled.work()).code(),
            absl::StatusCode::kCancelled);
  late.work()->deadline = MonotonicNow();
  EXPECT_EQ(scheduler->Submit(*std::move(second), late.work()).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

TEST(SchedulerReservationTest, WorkRunsOnTheDeviceThatHasItsInputs) {
  IdentityBackend zero(0), one(1);
  auto scheduler = MakeScheduler({}, {&zero, &one});
  for (int i = 0; i < 10; ++i) {
    TestWork test({});
    test.work()->devices = 2;
    ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
    EXPECT_EQ(test.Await()->device, "fake:1 identity");
  }
}

}  // namespace
}  // namespace attnd::server
