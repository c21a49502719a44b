// What scheduler.h promises, with devices that the test steps by hand.

#include "server/scheduler.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status.h"
#include "tests/server/fakes/fault_backend.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/test_work.h"

namespace attnd::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::UnorderedElementsAre;

constexpr absl::StatusCode kOk = absl::StatusCode::kOk;
constexpr absl::StatusCode kCancelled = absl::StatusCode::kCancelled;
constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
constexpr absl::StatusCode kExpired = absl::StatusCode::kDeadlineExceeded;
constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// One lane: whatever is running, the rest waits.
SchedulerOptions OneLane() {
  SchedulerOptions options;
  options.lanes_per_device = 1;
  return options;
}

std::unique_ptr<Scheduler> MakeScheduler(const SchedulerOptions& options,
                                         std::vector<Backend*> backends) {
  auto scheduler = Scheduler::Create(options, std::move(backends), nullptr);
  EXPECT_EQ(scheduler.status(), absl::OkStatus());
  return *std::move(scheduler);
}

std::vector<std::byte> Bytes(HostSpan span) {
  return {span.begin(), span.end()};
}

TEST(SchedulerTest, RunsWorkAndReportsIt) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork test({.q_len = 100, .kv_len = 70, .heads = 3, .dim = 16});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  absl::StatusOr<WorkResult> result = test.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(Bytes(result->outputs[TensorId::kO].span()), test.q());
  EXPECT_EQ(result->outputs[TensorId::kLse].span().size(), 100 * 3 * 4);
  EXPECT_FALSE(result->outputs[TensorId::kDQ]);
  EXPECT_EQ(result->device, "fake:0 identity");
  EXPECT_EQ(result->kernel.name, "identity");
  EXPECT_EQ(result->batch_requests, 1);
  EXPECT_GE(result->phases.queue, absl::ZeroDuration());
  EXPECT_GT(result->phases.upload, absl::ZeroDuration());
  EXPECT_GT(result->phases.compute, absl::ZeroDuration());
  EXPECT_EQ(test.done_calls(), 1);
  EXPECT_EQ(test.release_calls(), 1);
}

TEST(SchedulerTest, RunsBackward) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork test({.op = Op::kBackward, .q_len = 9, .kv_len = 5});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  absl::StatusOr<WorkResult> result = test.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(Bytes(result->outputs[TensorId::kDQ].span()), test.q());
  EXPECT_EQ(result->outputs[TensorId::kDK].span().size(), 5 * 8 * 4);
  EXPECT_EQ(result->outputs[TensorId::kDV].span().size(), 5 * 8 * 4);
  EXPECT_FALSE(result->outputs[TensorId::kO]);
}

TEST(SchedulerTest, UploadsTensorsLargerThanAPiece) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  for (size_t piece : {size_t{999983}, size_t{9 << 20}}) {
    TestWork test({.q_len = 1 << 14, .dim = 128, .piece_bytes = piece});
    ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
    absl::StatusOr<WorkResult> result = test.Await();
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(Bytes(result->outputs[TensorId::kO].span()), test.q());
  }
}

TEST(SchedulerTest, RunsWorkOfNoVolume) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork no_rows({.q_len = 0, .kv_len = 3});
  TestWork no_columns({.q_len = 2, .kv_len = 0});
  for (TestWork* test : {&no_rows, &no_columns}) {
    ASSERT_EQ(scheduler->Submit(test->work()), absl::OkStatus());
    absl::StatusOr<WorkResult> result = test->Await();
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_TRUE(result->outputs[TensorId::kO]);
    EXPECT_EQ(Bytes(result->outputs[TensorId::kO].span()), test->q());
  }
}

TEST(SchedulerTest, InputsAreReleasedWhileTheKernelRuns) {
  ManualBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork test({.q_len = 5});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  ManualBackend::Call call = backend.Await();
  EXPECT_EQ(test.release_calls(), 1);
  EXPECT_EQ(test.done_calls(), 0);
  backend.Finish(call);
  EXPECT_EQ(test.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerTest, WhatWaitsForTheSameLaneRunsAsOneGroup) {
  ManualBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork first({.q_len = 1}), second({.q_len = 2}), other({.dim = 4}),
      third({.q_len = 3});
  ASSERT_EQ(scheduler->Submit(first.work()), absl::OkStatus());
  ManualBackend::Call call = backend.Await();
  for (TestWork* test : {&second, &other, &third}) {
    ASSERT_EQ(scheduler->Submit(test->work()), absl::OkStatus());
  }
  EXPECT_EQ(scheduler->stats().queued_requests, 3);
  EXPECT_EQ(scheduler->stats().running_requests, 1);
  backend.Finish(call);
  call = backend.Await();
  EXPECT_THAT(call.q_lens, ElementsAre(2, 3));
  backend.FinishAll();
  absl::StatusOr<WorkResult> result = third.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(result->batch_requests, 2);
  EXPECT_EQ(Bytes(result->outputs[TensorId::kO].span()), third.q());
  EXPECT_EQ(second.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(other.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerTest, SmallRequestsPassALargeOneThatRuns) {
  ManualBackend backend;
  SchedulerOptions options;
  options.small_request_flops = 1000;
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork large({.q_len = 100}), larger({.q_len = 101}), small({.q_len = 1});
  ASSERT_EQ(scheduler->Submit(large.work()), absl::OkStatus());
  ManualBackend::Call running = backend.Await();
  // The lane for small requests is free, but not for this.
  ASSERT_EQ(scheduler->Submit(larger.work()), absl::OkStatus());
  ASSERT_EQ(scheduler->Submit(small.work()), absl::OkStatus());
  ManualBackend::Call passing = backend.Await();
  EXPECT_THAT(passing.q_lens, ElementsAre(1));
  backend.Finish(passing);
  EXPECT_EQ(small.AwaitStatus(), absl::OkStatus());
  EXPECT_FALSE(backend.HasBegun());
  backend.Finish(running);
  EXPECT_THAT(backend.Await().q_lens, ElementsAre(101));
  backend.FinishAll();
  EXPECT_EQ(large.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(larger.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerTest, EveryDeviceTakesWork) {
  ManualBackend zero(0), one(1);
  auto scheduler = MakeScheduler(OneLane(), {&zero, &one});
  TestWork a({.q_len = 1}), b({.q_len = 2});
  ASSERT_EQ(scheduler->Submit(a.work()), absl::OkStatus());
  ASSERT_EQ(scheduler->Submit(b.work()), absl::OkStatus());
  ManualBackend::Call on_zero = zero.Await(), on_one = one.Await();
  zero.Finish(on_zero);
  one.Finish(on_one);
  EXPECT_THAT((std::vector{a.Await()->device, b.Await()->device}),
              UnorderedElementsAre("fake:0 identity", "fake:1 identity"));
}

TEST(SchedulerTest, WaitsForCompanyOnlyWhenAskedTo) {
  ManualBackend backend;
  SchedulerOptions options = OneLane();
  options.max_batch_delay = absl::Minutes(1);
  options.max_batch_requests = 3;
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork a({.q_len = 1}), b({.q_len = 2}), c({.q_len = 3});
  ASSERT_EQ(scheduler->Submit(a.work()), absl::OkStatus());
  ASSERT_EQ(scheduler->Submit(b.work()), absl::OkStatus());
  ASSERT_EQ(scheduler->Submit(c.work()), absl::OkStatus());
  EXPECT_THAT(backend.Await().q_lens, ElementsAre(1, 2, 3));
  backend.FinishAll();
  EXPECT_EQ(c.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerTest, AWaitForCompanyEnds) {
  IdentityBackend backend;
  SchedulerOptions options;
  options.max_batch_delay = absl::Milliseconds(5);
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork test({});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  absl::StatusOr<WorkResult> result = test.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_GE(result->phases.queue, absl::Milliseconds(5));
}

// Admission.

class Choosy : public IdentityBackend {
 public:
  using IdentityBackend::IdentityBackend;
  absl::Status Supports(Op op, const Problem&,
                        const GroupOptions&) const override {
    if (op == Op::kForward) return absl::OkStatus();
    return absl::UnimplementedError("no backward here");
  }
};

TEST(SchedulerTest, RefusesWhatNoDeviceHasAKernelFor) {
  Choosy backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork test({.op = Op::kBackward});
  EXPECT_EQ(scheduler->Submit(test.work()),
            absl::UnimplementedError("no backward here"));
  EXPECT_EQ(test.release_calls(), 0);
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

TEST(SchedulerTest, WorkGoesToADeviceThatHasAKernel) {
  Choosy forward_only(0);
  ManualBackend both(1);
  auto scheduler = MakeScheduler(OneLane(), {&forward_only, &both});
  for (int i = 0; i < 5; ++i) {
    TestWork test({.op = Op::kBackward});
    ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
    both.Finish(both.Await());
    EXPECT_EQ(test.Await()->device, "fake:1 identity");
  }
}

TEST(SchedulerTest, RefusesForeverWhatExceedsALimit) {
  IdentityBackend backend;
  SchedulerOptions options;
  options.memory_bytes = 1 << 20;
  options.max_request_flops = 1e6;
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork flops({.q_len = 200, .kv_len = 200});
  absl::Status status = scheduler->Submit(flops.work());
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(status.message(), HasSubstr("FLOPs"));
  TestWork bytes({.q_len = 1, .kv_len = 20000});
  status = scheduler->Submit(bytes.work());
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(status.message(), HasSubstr("memory limit of 1048576"));
  EXPECT_EQ(wire::RetryDelay(status), std::nullopt);
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

TEST(SchedulerTest, ScratchThatNeverFitsNamesTheAlgorithm) {
  IdentityBackend backend;
  SchedulerOptions options;
  options.memory_bytes = 1 << 20;
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork naive({.q_len = 1000,
                  .kv_len = 1000,
                  .dim = 1,
                  .algorithm = Algorithm::kNaive});
  absl::Status status = scheduler->Submit(naive.work());
  EXPECT_EQ(status.code(), kInvalid);
  ASSERT_EQ(wire::FieldViolations(status).size(), 1);
  EXPECT_EQ(wire::FieldViolations(status)[0].field, "options.algorithm");
  TestWork other({.q_len = 1000, .kv_len = 1000, .dim = 1});
  EXPECT_EQ(scheduler->Submit(other.work()), absl::OkStatus());
  EXPECT_EQ(other.AwaitStatus(), absl::OkStatus());
}

void ExpectRetry(const absl::Status& status) {
  EXPECT_EQ(status.code(), kExhausted);
  std::optional<absl::Duration> delay = wire::RetryDelay(status);
  ASSERT_TRUE(delay.has_value());
  EXPECT_THAT(*delay, AllOf(Ge(absl::Milliseconds(10)), Le(absl::Seconds(5))));
}

TEST(SchedulerTest, AFullQueueSaysWhenToRetry) {
  ManualBackend backend;
  SchedulerOptions options = OneLane();
  options.max_queue_requests = 2;
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork running({}), a({}), b({}), refused({});
  ASSERT_EQ(scheduler->Submit(running.work()), absl::OkStatus());
  backend.Await();
  ASSERT_EQ(scheduler->Submit(a.work()), absl::OkStatus());
  ASSERT_EQ(scheduler->Submit(b.work()), absl::OkStatus());
  const int64_t held = scheduler->stats().account_bytes;
  ExpectRetry(scheduler->Submit(refused.work()));
  EXPECT_EQ(scheduler->stats().account_bytes, held);
  EXPECT_EQ(refused.release_calls(), 0);
  backend.FinishAll();
  EXPECT_EQ(b.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(refused.done_calls(), 0);
  ASSERT_EQ(scheduler->Submit(refused.work()), absl::OkStatus());
  EXPECT_EQ(refused.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerTest, TooManyFlopsInTheQueueSayWhenToRetry) {
  ManualBackend backend;
  SchedulerOptions options = OneLane();
  options.max_request_flops = options.max_queue_flops = 1e5;
  auto scheduler = MakeScheduler(options, {&backend});
  const WorkShape shape = {.q_len = 40, .kv_len = 40};
  TestWork running(shape), queued(shape), refused(shape);
  ASSERT_EQ(scheduler->Submit(running.work()), absl::OkStatus());
  backend.Await();
  ASSERT_EQ(scheduler->Submit(queued.work()), absl::OkStatus());
  EXPECT_GT(scheduler->stats().queued_flops, 5e4);
  ExpectRetry(scheduler->Submit(refused.work()));
  backend.FinishAll();
  EXPECT_EQ(queued.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerTest, NoMemorySaysWhenToRetryUntilResultsAreDropped) {
  IdentityBackend backend;
  SchedulerOptions options;
  options.memory_bytes = 1 << 20;
  auto scheduler = MakeScheduler(options, {&backend});
  const WorkShape shape = {.q_len = 10000, .dim = 8};
  TestWork first(shape), second(shape);
  ASSERT_EQ(scheduler->Submit(first.work()), absl::OkStatus());
  absl::StatusOr<WorkResult> result = first.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  // Done, but its bytes are still to be sent.
  ExpectRetry(scheduler->Submit(second.work()));
  result = absl::CancelledError();
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
  ASSERT_EQ(scheduler->Submit(second.work()), absl::OkStatus());
  EXPECT_EQ(second.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerTest, OneClientCannotFillTheQueueForAnother) {
  ManualBackend backend;
  SchedulerOptions options = OneLane();
  options.max_queue_requests = 90;
  options.max_batch_requests = 1;
  auto scheduler = MakeScheduler(options, {&backend});
  std::vector<std::unique_ptr<TestWork>> admitted;
  while (true) {
    auto test = std::make_unique<TestWork>(WorkShape{.client = "greedy"});
    if (!scheduler->Submit(test->work()).ok()) break;
    admitted.push_back(std::move(test));
  }
  EXPECT_THAT(admitted.size(), AllOf(Ge(75), Le(85)));
  TestWork modest({.client = "modest"});
  EXPECT_EQ(scheduler->Submit(modest.work()), absl::OkStatus());
  backend.FinishAll();
  EXPECT_EQ(modest.AwaitStatus(), absl::OkStatus());
  for (auto& test : admitted) EXPECT_EQ(test->AwaitStatus(), absl::OkStatus());
}

// Deadlines and cancelling.

TEST(SchedulerTest, RefusesWhatIsCancelledOrPastItsDeadline) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork late({.deadline = absl::Now()});
  EXPECT_EQ(scheduler->Submit(late.work()).code(), kExpired);
  TestWork cancelled({});
  scheduler->Cancel(cancelled.work());
  EXPECT_EQ(scheduler->Submit(cancelled.work()).code(), kCancelled);
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

TEST(SchedulerTest, CancellingQueuedWorkCompletesItAtOnce) {
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

TEST(SchedulerTest, CancellingRunningWorkReachesItsKernelButNotItsCompany) {
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

TEST(SchedulerTest, CancelledPastItsDeadlineIsDeadlineExceeded) {
  ManualBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork test({.deadline = absl::Now() + absl::Milliseconds(200)});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  ManualBackend::Call call = backend.Await();
  absl::Notification never;
  never.WaitForNotificationWithDeadline(test.work()->deadline);
  scheduler->Cancel(test.work());
  backend.Finish(call);
  EXPECT_EQ(test.AwaitStatus().code(), kExpired);
}

TEST(SchedulerTest, QueuedWorkPastItsDeadlineNeverReachesTheDevice) {
  ManualBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork running({.q_len = 1}), next({.q_len = 3});
  TestWork late(
      {.q_len = 2, .deadline = absl::Now() + absl::Milliseconds(200)});
  ASSERT_EQ(scheduler->Submit(running.work()), absl::OkStatus());
  ManualBackend::Call call = backend.Await();
  ASSERT_EQ(scheduler->Submit(late.work()), absl::OkStatus());
  absl::Notification never;
  never.WaitForNotificationWithDeadline(late.work()->deadline);
  ASSERT_EQ(scheduler->Submit(next.work()), absl::OkStatus());
  EXPECT_EQ(late.done_calls(), 1);
  EXPECT_EQ(late.AwaitStatus().code(), kExpired);
  EXPECT_EQ(late.release_calls(), 1);
  backend.Finish(call);
  EXPECT_THAT(backend.Await().q_lens, ElementsAre(3));
  backend.FinishAll();
  EXPECT_EQ(next.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerTest, NoLockIsHeldWhileDoneRuns) {
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

TEST(SchedulerTest, DrainRefusesNewWorkAndFinishesWhatWasAdmitted) {
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
    refused.work()->cancel.Cancel();
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

TEST(SchedulerTest, DrainWithoutTimeLeftGivesTheRestUnavailable) {
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

TEST(SchedulerTest, DrainEndsWaitsForCompany) {
  IdentityBackend backend;
  SchedulerOptions options;
  options.max_batch_delay = absl::Minutes(1);
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork test({});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  scheduler->Drain(absl::InfiniteFuture());
  EXPECT_EQ(test.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerTest, AnIdleSchedulerDrainsAndDrainsAgain) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler({}, {&backend});
  scheduler->Drain(absl::InfiniteFuture());
  scheduler->Drain(absl::InfinitePast());
  TestWork test({});
  EXPECT_EQ(scheduler->Submit(test.work()).code(), kUnavailable);
}

TEST(SchedulerTest, ResultsOutliveSchedulerAndBackend) {
  auto backend = std::make_unique<IdentityBackend>();
  auto scheduler = MakeScheduler({}, {backend.get()});
  TestWork test({.q_len = 1000});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  absl::StatusOr<WorkResult> result = test.Await();
  scheduler.reset();
  backend.reset();
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(Bytes(result->outputs[TensorId::kO].span()), test.q());
}

// Faults.

struct Faults {
  std::vector<int> devices;
  std::vector<absl::Status> statuses;
};

std::unique_ptr<Scheduler> MakeFaulty(const SchedulerOptions& options,
                                      std::vector<Backend*> backends,
                                      Faults& faults) {
  auto scheduler =
      Scheduler::Create(options, std::move(backends),
                        [&faults](int device, const absl::Status& status) {
                          faults.devices.push_back(device);
                          faults.statuses.push_back(status);
                        });
  EXPECT_EQ(scheduler.status(), absl::OkStatus());
  return *std::move(scheduler);
}

class StageTest : public ::testing::TestWithParam<IdentityBackend::Stage> {};

TEST_P(StageTest, AFaultFailsItsBatchAndTakesTheDeviceOutOfService) {
  FaultBackend backend;
  backend.Fail(GetParam(), absl::DataLossError("ECC"));
  Faults faults;
  auto scheduler = MakeFaulty({}, {&backend}, faults);
  TestWork test({.q_len = 7});
  ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
  absl::Status status = test.AwaitStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("device fake:0 failed: ECC"));
  EXPECT_EQ(test.release_calls(), 1);
  EXPECT_THAT(faults.devices, ElementsAre(0));
  EXPECT_THAT(faults.statuses, ElementsAre(absl::DataLossError("ECC")));
  EXPECT_THAT(scheduler->stats().device_in_service, ElementsAre(false));
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
  TestWork after({});
  EXPECT_EQ(scheduler->Submit(after.work()).code(), kUnavailable);
  scheduler->Drain(absl::InfiniteFuture());
  EXPECT_EQ(scheduler->stats().running_requests, 0);
}

INSTANTIATE_TEST_SUITE_P(Stages, StageTest,
                         ::testing::Values(IdentityBackend::Stage::kAllocate,
                                           IdentityBackend::Stage::kMapOutput,
                                           IdentityBackend::Stage::kUpload,
                                           IdentityBackend::Stage::kRun,
                                           IdentityBackend::Stage::kDownload,
                                           IdentityBackend::Stage::kWait));

TEST(SchedulerTest, WhenNoDeviceIsLeftQueuedWorkIsUnavailable) {
  ManualBackend backend;
  Faults faults;
  auto scheduler = MakeFaulty(OneLane(), {&backend}, faults);
  TestWork running({}), queued({.dim = 4});
  ASSERT_EQ(scheduler->Submit(running.work()), absl::OkStatus());
  ManualBackend::Call call = backend.Await();
  ASSERT_EQ(scheduler->Submit(queued.work()), absl::OkStatus());
  backend.Finish(call, absl::InternalError("gone"));
  EXPECT_EQ(running.AwaitStatus().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(queued.AwaitStatus().code(), kUnavailable);
  EXPECT_THAT(faults.devices, ElementsAre(0));
}

TEST(SchedulerTest, WorkGoesOnWithTheDeviceThatIsLeft) {
  FaultBackend broken(0);
  broken.Fail(IdentityBackend::Stage::kRun, absl::InternalError("gone"));
  IdentityBackend sound(1);
  Faults faults;
  auto scheduler = MakeFaulty(OneLane(), {&broken, &sound}, faults);
  // Sooner or later the broken one takes something.
  while (scheduler->stats().device_in_service[0]) {
    TestWork test({});
    ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
    test.Await().IgnoreError();
  }
  for (int i = 0; i < 10; ++i) {
    TestWork test({});
    ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
    EXPECT_EQ(test.AwaitStatus(), absl::OkStatus());
  }
  EXPECT_THAT(faults.devices, ElementsAre(0));
  EXPECT_THAT(scheduler->stats().device_in_service, ElementsAre(false, true));
}

TEST(SchedulerTest, NoDeviceMemoryFailsTheRequestAndKeepsTheDevice) {
  for (auto stage : {IdentityBackend::Stage::kAllocate,
                     IdentityBackend::Stage::kMapOutput}) {
    FaultBackend backend;
    backend.Fail(stage, absl::ResourceExhaustedError("full"), 1);
    Faults faults;
    auto scheduler = MakeFaulty({}, {&backend}, faults);
    TestWork test({}), again({});
    ASSERT_EQ(scheduler->Submit(test.work()), absl::OkStatus());
    ExpectRetry(test.AwaitStatus());
    EXPECT_EQ(scheduler->stats().account_bytes, 0);
    ASSERT_EQ(scheduler->Submit(again.work()), absl::OkStatus());
    EXPECT_EQ(again.AwaitStatus(), absl::OkStatus());
    EXPECT_TRUE(faults.devices.empty());
  }
}

TEST(SchedulerTest, NoHostMemoryForAResultFailsTheRequestAlone) {
  IdentityBackend backend;
  backend.memory().set_limit_bytes(1 << 16);
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork large({.q_len = 10000}), small({});
  ASSERT_EQ(scheduler->Submit(large.work()), absl::OkStatus());
  ExpectRetry(large.AwaitStatus());
  ASSERT_EQ(scheduler->Submit(small.work()), absl::OkStatus());
  EXPECT_EQ(small.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerTest, RefusesOptionsOutOfRange) {
  IdentityBackend backend;
  const auto create = [&](auto change) {
    SchedulerOptions options;
    change(options);
    return Scheduler::Create(options, {&backend}, nullptr).status().code();
  };
  EXPECT_EQ(create([](auto& o) { o.lanes_per_device = 0; }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.memory_bytes = 0; }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.max_queue_requests = 0; }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.max_request_flops = 1e99; }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.max_batch_delay = -absl::Seconds(1); }),
            kInvalid);
  EXPECT_EQ(create([](auto&) {}), kOk);
  EXPECT_EQ(Scheduler::Create({}, {}, nullptr).status().code(), kInvalid);
}

}  // namespace
}  // namespace attnd::server
