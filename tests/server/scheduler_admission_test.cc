// What the scheduler refuses, and what it says then.

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"
#include "server/scheduling/scheduler.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/test_work.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr absl::StatusCode kOk = absl::StatusCode::kOk;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

class Choosy : public IdentityBackend {
 public:
  using IdentityBackend::IdentityBackend;
  absl::Status Supports(Op op, const Problem&,
                        const GroupOptions&) const override {
    if (op == Op::kForward) return absl::OkStatus();
    return absl::UnimplementedError("no backward here");
  }
};

TEST(SchedulerAdmissionTest, RefusesWhatNoDeviceHasAKernelFor) {
  Choosy backend;
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork test({.op = Op::kBackward});
  EXPECT_EQ(scheduler->Submit(test.work()),
            absl::UnimplementedError("no backward here"));
  EXPECT_EQ(test.release_calls(), 0);
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

TEST(SchedulerAdmissionTest, WorkGoesToADeviceThatHasAKernel) {
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

TEST(SchedulerAdmissionTest, RefusesForeverWhatExceedsALimit) {
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

TEST(SchedulerAdmissionTest, ScratchThatNeverFitsNamesTheAlgorithm) {
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

TEST(SchedulerAdmissionTest, AFullQueueSaysWhenToRetry) {
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

TEST(SchedulerAdmissionTest, AClientsOwnLimitsHoldWhateverRoomThereIs) {
  ManualBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork running({}), a({}), more({}), other({.client = "other"});
  ASSERT_EQ(scheduler->Submit(running.work()), absl::OkStatus());
  backend.Await();
  const int64_t bytes = scheduler->stats().account_bytes;
  for (TestWork* test : {&a, &more, &other}) {
    test->work()->quota.queue_bytes = 2 * bytes;
  }
  ASSERT_EQ(scheduler->Submit(a.work()), absl::OkStatus());
  const double flops = scheduler->stats().queued_flops;
  const absl::Status by_bytes = scheduler->Submit(more.work());
  ExpectRetry(by_bytes);
  EXPECT_THAT(by_bytes.message(), HasSubstr("--max_client_queue_bytes"));
  EXPECT_FALSE(Scheduler::LacksMemory(by_bytes)) << "nothing is to wait for it";
  more.work()->quota = {.queue_flops = 1.5 * flops};
  const absl::Status by_flops = scheduler->Submit(more.work());
  ExpectRetry(by_flops);
  EXPECT_THAT(by_flops.message(), HasSubstr("--max_client_queue_flops"));
  EXPECT_EQ(scheduler->stats().account_bytes, 2 * bytes);
  // Another's, and one more in place of what has left.
  EXPECT_EQ(scheduler->Submit(other.work()), absl::OkStatus());
  backend.FinishAll();
  for (TestWork* test : {&running, &a, &other}) {
    EXPECT_EQ(test->AwaitStatus(), absl::OkStatus());
  }
  EXPECT_EQ(scheduler->Submit(more.work()), absl::OkStatus());
  EXPECT_EQ(more.AwaitStatus(), absl::OkStatus());
}

TEST(SchedulerAdmissionTest, RefusesForeverWhatExceedsAClientsOwnLimit) {
  IdentityBackend backend;
  auto scheduler = MakeScheduler(OneLane(), {&backend});
  TestWork test({});
  test.work()->quota.queue_bytes = 1;
  absl::Status status = scheduler->Submit(test.work());
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(status.message(), HasSubstr("--max_client_queue_bytes"));
  test.work()->quota = {.queue_flops = 1};
  status = scheduler->Submit(test.work());
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(status.message(), HasSubstr("--max_client_queue_flops"));
  EXPECT_EQ(scheduler->stats().account_bytes, 0);
}

TEST(SchedulerAdmissionTest, TooManyFlopsInTheQueueSayWhenToRetry) {
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

TEST(SchedulerAdmissionTest, NoMemorySaysWhenToRetryUntilResultsAreDropped) {
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

TEST(SchedulerAdmissionTest, OneClientCannotFillTheQueueForAnother) {
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

TEST(SchedulerAdmissionTest, RefusesOptionsOutOfRange) {
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
