// Room that is made for a request before its inputs are here.

#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduling/scheduler.h"
#include "server/work/request_bytes.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/test_work.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {
namespace {

absl::StatusOr<Reservation> Admit(Scheduler& scheduler, const TestWork& test) {
  return scheduler.Admit(*test.work());
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

TEST(SchedulerReservationTest, ADrainWaitsForItAndItsWork) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork test({}), late({}), given_up({});
  auto reservation = Admit(*scheduler, test);
  auto other = Admit(*scheduler, given_up);
  ASSERT_EQ(reservation.status(), absl::OkStatus());
  ASSERT_EQ(other.status(), absl::OkStatus());
  std::thread drain([&] { scheduler->Drain(absl::InfiniteFuture()); });
  // From when it drains nothing new is admitted; until then it all is.
  while (Admit(*scheduler, late).ok()) std::this_thread::yield();
  EXPECT_EQ(scheduler->Submit(*std::move(reservation), test.work()),
            absl::OkStatus());
  EXPECT_EQ(test.AwaitStatus(), absl::OkStatus());
  { const Reservation gone = *std::move(other); }
  drain.join();
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

TEST(SchedulerReservationTest, PastTheDrainsDeadlineItsWorkIsRefused) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork test({});
  auto reservation = Admit(*scheduler, test);
  ASSERT_EQ(reservation.status(), absl::OkStatus());
  scheduler->Drain(MonotonicNow());
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

TEST(SchedulerReservationTest, InputsAreChargedUntilTheirMemoryIsBack) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork test({});
  auto reservation = Admit(*scheduler, test);
  ASSERT_EQ(reservation.status(), absl::OkStatus());
  const int64_t bytes = DeviceInputBytes(*test.work()->request);
  auto placed = scheduler->PlaceInputs(*reservation, bytes);
  ASSERT_EQ(placed.status(), absl::OkStatus());
  EXPECT_EQ(placed->devices, 1);
  std::memset(placed->buffer->data(), 1, bytes);
  { const Reservation given_up = *std::move(reservation); }
  EXPECT_GT(scheduler->stats().account_bytes, 0);
  placed->buffer.reset();
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

TEST(SchedulerReservationTest, InputsGoWhereLeastHasBeenPlaced) {
  IdentityBackend zero(0), one(1);
  auto scheduler = MakeScheduler({}, {&zero, &one});
  const auto place = [&](int64_t q_len) {
    TestWork test({.q_len = q_len});
    auto reservation = Admit(*scheduler, test);
    return *scheduler->PlaceInputs(*reservation, 256);
  };
  PlacedInputs small = place(1), large = place(1000);
  EXPECT_EQ(small.devices, 1);
  EXPECT_EQ(large.devices, 2);
  PlacedInputs next = place(1);
  EXPECT_EQ(next.devices, 1);
  large = {};
  EXPECT_EQ(place(1).devices, 2);
}

TEST(SchedulerReservationTest, InputsThatFindNoMemoryMayBeTriedAgain) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork test({});
  auto reservation = Admit(*scheduler, test);
  backend.memory().set_limit_bytes(0);
  ExpectRetry(scheduler->PlaceInputs(*reservation, 256).status());
  backend.memory().set_limit_bytes(1 << 20);
  EXPECT_EQ(scheduler->PlaceInputs(*reservation, 256).status(),
            absl::OkStatus());
}

}  // namespace
}  // namespace attnd::server
