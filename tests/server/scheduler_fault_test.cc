// Devices that break or run out of memory.

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduling/scheduler.h"
#include "tests/server/fakes/fault_backend.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/test_work.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;

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

TEST(SchedulerFaultTest, WhenNoDeviceIsLeftQueuedWorkIsUnavailable) {
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

TEST(SchedulerFaultTest, WorkGoesOnWithTheDeviceThatIsLeft) {
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

TEST(SchedulerFaultTest, NoDeviceMemoryFailsTheRequestAndKeepsTheDevice) {
  for (auto stage :
       {IdentityBackend::Stage::kAllocate, IdentityBackend::Stage::kMapOutput,
        IdentityBackend::Stage::kRun}) {
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

TEST(SchedulerFaultTest, NoHostMemoryForAResultFailsTheRequestAlone) {
  IdentityBackend backend;
  backend.memory().set_limit_bytes(1 << 16);
  auto scheduler = MakeScheduler({}, {&backend});
  TestWork large({.q_len = 10000}), small({});
  ASSERT_EQ(scheduler->Submit(large.work()), absl::OkStatus());
  ExpectRetry(large.AwaitStatus());
  ASSERT_EQ(scheduler->Submit(small.work()), absl::OkStatus());
  EXPECT_EQ(small.AwaitStatus(), absl::OkStatus());
}

}  // namespace
}  // namespace attnd::server
