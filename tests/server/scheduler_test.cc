// How admitted work runs: lanes, groups, devices. Devices are stepped by hand.

#include "server/scheduling/scheduler.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/test_work.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

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

// A request of one row passes while one of `rows` runs on the other lane, and
// one more waits for that lane.
void ExpectThatASmallOnePasses(SchedulerOptions options, int64_t rows) {
  ManualBackend backend;
  options.lanes_per_device = 2;
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork large({.q_len = rows}), larger({.q_len = rows + 1});
  TestWork small({.q_len = 1});
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
  EXPECT_THAT(backend.Await().q_lens, ElementsAre(rows + 1));
  backend.FinishAll();
  EXPECT_EQ(large.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(larger.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerTest, SmallRequestsPassALargeOneThatRuns) {
  SchedulerOptions options;
  options.small_request_flops = 1000;
  ExpectThatASmallOnePasses(options, /*rows=*/100);
}

// What takes long to copy holds the lane for small requests up as well.
TEST(SchedulerTest, SmallRequestsPassManyBytesOfFewFlops) {
  SchedulerOptions options;
  options.small_request_bytes = 16 << 10;
  ExpectThatASmallOnePasses(options, /*rows=*/1000);
}

TEST(SchedulerTest, EveryDeviceTakesWork) {
  ManualBackend zero(0), one(1);
  auto scheduler = MakeScheduler(OneLane(), {&zero, &one});
  TestWork a({.dim = 8}), b({.dim = 4});  // never one group
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
  options.max_batch_delay = absl::Seconds(10);
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

TEST(SchedulerTest, IdleResultMemoryGivesWayToAdmittedWork) {
  ManualBackend backend;
  backend.FinishAll();
  SchedulerOptions options;
  options.memory_bytes = 1 << 20;
  auto scheduler = MakeScheduler(options, {&backend});
  TestWork large_result({.q_len = 10000}), large_inputs({.kv_len = 14000});
  ASSERT_EQ(scheduler->Submit(large_result.work()), absl::OkStatus());
  EXPECT_EQ(large_result.AwaitStatus(), absl::OkStatus());
  EXPECT_GE(backend.memory().live_bytes(), 320000);
  ASSERT_EQ(scheduler->Submit(large_inputs.work()), absl::OkStatus());
  // 896 kB of inputs and two pages of outputs leave no more.
  EXPECT_LE(backend.memory().live_bytes(), (1 << 20) - 896000);
  EXPECT_EQ(large_inputs.AwaitStatus(), absl::OkStatus());
}

}  // namespace
}  // namespace attnd::server
