// A lane and the groups it runs, fed by hand.

#include "server/execution/lane.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/fakes/fault_backend.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/test_work.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using Stage = IdentityBackend::Stage;
using Works = std::vector<std::shared_ptr<Work>>;

// Gives out what the test queues, and ends the lane after the last.
class Feeder : public LaneFeeder {
 public:
  explicit Feeder(std::deque<Works> groups) : groups_(std::move(groups)) {}

  Assignment NextGroup(int lane) override {
    EXPECT_EQ(lane, 3);
    if (fault_ != absl::OkStatus() || groups_.empty()) return {};
    Works group = std::move(groups_.front());
    groups_.pop_front();
    return {std::move(group), nullptr, false};
  }
  std::unique_ptr<GroupRun> Park(int, std::unique_ptr<GroupRun> run) override {
    ADD_FAILURE() << "nothing may be paused";
    return run;
  }
  void Complete(std::shared_ptr<Work> work,
                absl::StatusOr<WorkResult> result) override {
    faults_before_.push_back(!fault_.ok());
    work->done(std::move(result));
  }
  void DeviceFault(int, const absl::Status& status) override {
    EXPECT_EQ(fault_, absl::OkStatus());
    fault_ = status;
  }

  // Once the lane has ended.
  const absl::Status& fault() const { return fault_; }
  // Of each completion, whether the fault was known before.
  const std::vector<bool>& faults_before() const { return faults_before_; }

 private:
  std::deque<Works> groups_;
  absl::Status fault_;
  std::vector<bool> faults_before_;
};

// Runs the groups on a lane until it ends.
void RunLane(IdentityBackend& backend, Feeder& feeder) {
  auto pool = OutputPool::Create(backend.host_memory(), 1 << 20);
  auto streams = *StreamPool::Create(backend, 1);
  Lane lane(3, backend, *streams, *pool, absl::Milliseconds(1), feeder);
}

std::vector<std::byte> O(const WorkResult& result) {
  HostSpan span = result.outputs[TensorId::kO].span();
  return {span.begin(), span.end()};
}

TEST(LaneTest, RunsGroupAfterGroupAndEndsWhenThereIsNone) {
  IdentityBackend backend;
  TestWork a({.q_len = 3}), b({.q_len = 4}), c({.q_len = 5});
  Feeder feeder({{a.work(), b.work()}, {c.work()}});
  RunLane(backend, feeder);
  for (TestWork* test : {&a, &b, &c}) {
    absl::StatusOr<WorkResult> result = test->Await();
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(O(*result), test->q());
    EXPECT_EQ(result->batch_requests, test == &c ? 1 : 2);
    EXPECT_EQ(test->release_calls(), 1);
  }
}

TEST(LaneTest, WhatFindsNoMemoryBesideTheOthersRunsAfterThem) {
  for (Stage stage : {Stage::kAllocate, Stage::kMapOutput}) {
    FaultBackend backend;
    // The first member's, or both of its outputs, succeed.
    const int after = stage == Stage::kAllocate ? 1 : 2;
    backend.Fail(stage, absl::ResourceExhaustedError("full"), 1, after);
    TestWork a({.q_len = 3}), b({.q_len = 4}), c({.q_len = 5});
    Feeder feeder({{a.work(), b.work(), c.work()}});
    RunLane(backend, feeder);
    EXPECT_EQ(feeder.fault(), absl::OkStatus());
    for (TestWork* test : {&a, &b, &c}) {
      absl::StatusOr<WorkResult> result = test->Await();
      ASSERT_EQ(result.status(), absl::OkStatus());
      EXPECT_EQ(O(*result), test->q());
      EXPECT_EQ(result->batch_requests, test == &b ? 1 : 2);
      EXPECT_EQ(test->release_calls(), 1);
    }
  }
}

TEST(LaneTest, WhatFindsNoMemoryAloneFails) {
  FaultBackend backend;
  backend.Fail(Stage::kAllocate, absl::ResourceExhaustedError("full"), 2, 1);
  TestWork a({}), b({}), c({});
  Feeder feeder({{a.work(), b.work()}, {c.work()}});
  RunLane(backend, feeder);
  EXPECT_EQ(a.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(b.AwaitStatus(), absl::ResourceExhaustedError("full"));
  EXPECT_EQ(c.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(b.release_calls(), 1);
}

// Has no scratch memory for a group with this problem in it.
class NoScratchFor : public IdentityBackend {
 public:
  explicit NoScratchFor(int64_t q_len) : q_len_(q_len) {}

  absl::Status On(Stage stage, Group group) override {
    if (stage != Stage::kRun) return absl::OkStatus();
    for (const Problem* problem : group) {
      if (problem->q_len == q_len_) {
        return absl::ResourceExhaustedError("no scratch");
      }
    }
    return absl::OkStatus();
  }

 private:
  const int64_t q_len_;
};

TEST(LaneTest, WhatFindsNoScratchFailsAloneAfterItsInputsHaveGone) {
  NoScratchFor backend(5);
  TestWork works[] = {TestWork({.q_len = 3}), TestWork({.q_len = 4}),
                      TestWork({.q_len = 5}), TestWork({.q_len = 6}),
                      TestWork({.q_len = 7})};
  Works group;
  for (TestWork& test : works) group.push_back(test.work());
  Feeder feeder({std::move(group)});
  RunLane(backend, feeder);
  EXPECT_EQ(feeder.fault(), absl::OkStatus());
  for (TestWork& test : works) {
    absl::StatusOr<WorkResult> result = test.Await();
    EXPECT_EQ(test.release_calls(), 1);
    if (&test == &works[2]) {
      EXPECT_EQ(result.status(), absl::ResourceExhaustedError("no scratch"));
      continue;
    }
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(O(*result), test.q());
  }
}

TEST(LaneTest, AFaultFailsTheWholeGroupAfterItWasReported) {
  FaultBackend backend;
  backend.Fail(Stage::kUpload, absl::InternalError("bus"), -1, 5);
  TestWork a({.q_len = 3}), b({.q_len = 4}), never({});
  Feeder feeder({{a.work(), b.work()}, {never.work()}});
  RunLane(backend, feeder);
  EXPECT_EQ(feeder.fault(), absl::InternalError("bus"));
  EXPECT_THAT(feeder.faults_before(), ElementsAre(true, true));
  EXPECT_EQ(a.AwaitStatus().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(b.AwaitStatus().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(never.done_calls(), 0);
}

TEST(LaneTest, CancelledMembersStayOffTheDevice) {
  IdentityBackend backend;
  TestWork a({.q_len = 3}), b({.q_len = 4});
  a.work()->cancel.Cancel();
  Feeder feeder({{a.work(), b.work()}});
  RunLane(backend, feeder);
  EXPECT_EQ(a.AwaitStatus().code(), absl::StatusCode::kCancelled);
  absl::StatusOr<WorkResult> result = b.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(result->batch_requests, 1);
}

// Cancels when the given upload begins.
class CancelsDuringUpload : public IdentityBackend {
 public:
  absl::Status On(Stage stage, Group) override {
    if (stage == Stage::kUpload && ++uploads_ == 2) token->Cancel();
    if (stage == Stage::kRun) ++runs;
    if (stage == Stage::kWait) ++waits;
    return absl::OkStatus();
  }
  int uploads() const { return uploads_; }

  CancelToken* token = nullptr;
  int runs = 0;
  int waits = 0;

 private:
  int uploads_ = 0;
};

TEST(LaneTest, AnUploadStopsSoonAfterItsRequestIsCancelled) {
  CancelsDuringUpload backend;
  TestWork test({.q_len = 1 << 16, .dim = 128});  // 32 MiB: eight pieces
  backend.token = &test.work()->cancel;
  Feeder feeder({{test.work()}});
  RunLane(backend, feeder);
  EXPECT_EQ(test.AwaitStatus().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(backend.uploads(), 2);
  EXPECT_EQ(backend.runs, 0);
  EXPECT_EQ(backend.waits, 1);  // for the piece that was under way
  EXPECT_EQ(test.release_calls(), 1);
}

}  // namespace
}  // namespace attnd::server
