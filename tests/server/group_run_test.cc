// A group from its first byte to its last, on a stream of its own.

#include "server/execution/group_run.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/work/request_bytes.h"
#include "tests/server/fakes/fault_backend.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/team_backend.h"
#include "tests/server/fakes/test_work.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Stage = IdentityBackend::Stage;

// Of f32 and dim 8: an output of this many rows leaves before others'.
constexpr int64_t kPortionRows = int64_t{1} << 15;

struct OneRun {
  OneRun(IdentityBackend& backend, std::vector<WorkPtr> works)
      : pool(OutputPool::Create(backend.host_memory(), 0)),
        run(backend, *backend.NewStream(), *pool, std::move(works)) {}

  absl::Status Execute() {
    return Until([] { return false; }).status();
  }
  absl::StatusOr<GroupRun::Outcome> Until(GroupRun::Pause pause) {
    return run.Execute(pause, [this](GroupRun::Completed c) {
      completed.push_back(c.work.get());
      c.work->done(std::move(c.result));
    });
  }

  std::shared_ptr<OutputPool> pool;
  GroupRun run;
  std::vector<const Work*> completed;  // in order
};

TEST(GroupRunTest, ChargesWhatItAllocates) {
  IdentityBackend backend;
  TestWork test({.q_len = 1000, .kv_len = 77, .heads = 3, .dim = 33});
  const Request& request = *test.work()->request;
  OneRun run(backend, {test.work()});
  ASSERT_EQ(run.Execute(), absl::OkStatus());
  EXPECT_EQ(backend.memory().live_bytes(), PooledOutputBytes(request));
  EXPECT_GE(PooledOutputBytes(request), request.output_bytes());
  EXPECT_GE(DeviceInputBytes(request), request.input_bytes());
  EXPECT_EQ(DeviceInputBytes(request) % kTensorAlignment, 0);
  EXPECT_THAT(run.run.TakeDeferred(), IsEmpty());
  EXPECT_EQ(test.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(backend.memory().live_bytes(), 0);
}

// Moves the work's inputs into one buffer, which several threads write.
std::shared_ptr<DeviceBuffer> MoveToDevice(Backend& backend, Work& work) {
  std::shared_ptr<DeviceBuffer> buffer =
      *backend.NewBuffer(DeviceInputBytes(*work.request));
  std::vector<std::thread> writers;
  int64_t offset = 0;
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    const Request::Tensor& input = work.request->input(id);
    if (!input.present) continue;
    int64_t to = offset;
    for (const ConstHostSpan& piece : std::get<HostPieces>(work.inputs[id])) {
      writers.emplace_back(
          [=] { EXPECT_EQ(buffer->Write(to, {piece}), absl::OkStatus()); });
      to += static_cast<int64_t>(piece.size());
    }
    work.inputs[id] = DeviceBytes{buffer, offset};
    offset += AlignedTensorBytes(input.bytes);
  }
  for (std::thread& writer : writers) writer.join();
  return buffer;
}

TEST(GroupRunTest, ReadsInputsWhereTheyLieOnTheDevice) {
  FaultBackend backend;
  // Nothing of theirs is allocated or copied.
  backend.Fail(Stage::kAllocate, absl::InternalError("allocates"));
  TestWork test({.op = Op::kBackward, .q_len = 300, .kv_len = 200});
  std::weak_ptr<DeviceBuffer> buffer = MoveToDevice(backend, *test.work());
  OneRun run(backend, {test.work()});
  ASSERT_EQ(run.Execute(), absl::OkStatus());
  // Its owner and the stream have let go of it.
  EXPECT_TRUE(buffer.expired());
  EXPECT_EQ(test.release_calls(), 1);
  absl::StatusOr<WorkResult> result = test.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  const HostSpan dq = result->outputs[TensorId::kDQ].span();
  ASSERT_EQ(dq.size(), test.q().size());
  EXPECT_EQ(std::memcmp(dq.data(), test.q().data(), dq.size()), 0);
}

// Looks at a buffer while the kernels run.
class LooksAtBuffer : public IdentityBackend {
 public:
  absl::Status On(Stage stage, Group) override {
    if (stage == Stage::kRun) lives_ = !buffer.expired();
    return absl::OkStatus();
  }
  bool lives() const { return lives_; }

  std::weak_ptr<DeviceBuffer> buffer;

 private:
  bool lives_ = false;
};

TEST(GroupRunTest, ABufferStaysForItsKernelsAndForOthersInputsInIt) {
  LooksAtBuffer backend;
  TestWork a({.q_len = 10}), b({.q_len = 20}), host({.q_len = 30});
  backend.buffer = MoveToDevice(backend, *a.work());
  MoveToDevice(backend, *b.work());
  b.work()->inputs[TensorId::kK] = a.work()->inputs[TensorId::kK];
  OneRun run(backend, {a.work(), b.work(), host.work()});
  ASSERT_EQ(run.Execute(), absl::OkStatus());
  EXPECT_TRUE(backend.lives());
  EXPECT_TRUE(backend.buffer.expired());
  for (TestWork* test : {&a, &b, &host}) {
    absl::StatusOr<WorkResult> result = test->Await();
    ASSERT_EQ(result.status(), absl::OkStatus());
    const HostSpan o = result->outputs[TensorId::kO].span();
    EXPECT_EQ(std::vector<std::byte>(o.begin(), o.end()), test->q());
  }
}

// Is not done before somebody waits for it.
class TakesLong : public FaultBackend {
 public:
  bool IsOver() override { return false; }
};

TEST(GroupRunTest, TellsWhoeverWaitsThatTheDeviceIsAtWork) {
  TakesLong backend;
  TestWork a({.q_len = 10}), b({.q_len = 20}), cancelled({.q_len = 30});
  cancelled.work()->cancel.Cancel();
  std::vector<const TestWork*> told;
  for (const TestWork* test : {&a, &cancelled, &b}) {
    test->work()->under_way = [&told, test] {
      EXPECT_EQ(test->done_calls(), 0);
      told.push_back(test);
    };
  }
  OneRun run(backend, {a.work(), cancelled.work(), b.work()});
  ASSERT_EQ(run.Execute(), absl::OkStatus());
  EXPECT_THAT(told, ElementsAre(&a, &b));
  EXPECT_EQ(a.AwaitStatus(), absl::OkStatus());
  EXPECT_EQ(b.AwaitStatus(), absl::OkStatus());
}

TEST(GroupRunTest, TellsNobodyOfADeviceThatIsDoneSoon) {
  IdentityBackend backend;
  TestWork test({.q_len = 10});
  test.work()->under_way = [] { ADD_FAILURE() << "is done already"; };
  OneRun run(backend, {test.work()});
  ASSERT_EQ(run.Execute(), absl::OkStatus());
  EXPECT_EQ(test.AwaitStatus(), absl::OkStatus());
}

// Tells the test of each wait for a mark before it is over.
class WaitsForMarks : public FaultBackend {
 public:
  absl::Status On(Stage stage, Group group) override {
    if (stage == Stage::kWaitFor || stage == Stage::kWait) on_wait();
    return FaultBackend::On(stage, group);
  }
  std::function<void()> on_wait;
};

TEST(GroupRunTest, ResultsLeaveInTurnsWhileOthersAreOnTheirWay) {
  WaitsForMarks backend;
  TestWork large({.q_len = kPortionRows}), small({.q_len = 1}),
      larger({.q_len = kPortionRows + 1}), last({.q_len = 2});
  OneRun run(backend, {large.work(), small.work(), larger.work(), last.work()});
  std::vector<size_t> seen;
  backend.on_wait = [&] { seen.push_back(run.completed.size()); };
  ASSERT_EQ(run.Execute(), absl::OkStatus());
  // Uploads, kernels, the first, the two that follow, all.
  EXPECT_THAT(seen, ElementsAre(0, 0, 0, 1, 3));
  EXPECT_THAT(run.completed,
              ElementsAre(large.work().get(), small.work().get(),
                          larger.work().get(), last.work().get()));
  for (TestWork* test : {&large, &small, &larger, &last}) {
    absl::StatusOr<WorkResult> result = test->Await();
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(result->batch_requests, 4);
    EXPECT_GT(result->phases.upload, absl::ZeroDuration());
    EXPECT_GT(result->phases.compute, absl::ZeroDuration());
  }
}

TEST(GroupRunTest, SmallResultsLeaveTogether) {
  WaitsForMarks backend;
  TestWork a({.q_len = 1}), b({.q_len = 2});
  OneRun run(backend, {a.work(), b.work()});
  int waits = 0;
  backend.on_wait = [&] { ++waits; };
  ASSERT_EQ(run.Execute(), absl::OkStatus());
  EXPECT_EQ(waits, 1);
}

// Told apart by the plan that they ran as.
TEST(GroupRunTest, ATeamsResultsHaveItsReport) {
  TeamBackend team;
  for (const PlanKind plan :
       {PlanKind::kHeads, PlanKind::kGather, PlanKind::kRing,
        PlanKind::kStriped, PlanKind::kZigzag, PlanKind::kKv}) {
    // Where one device ran them, the first would leave before the others.
    TestWork first({.q_len = kPortionRows, .plan = plan}),
        second({.q_len = 1, .plan = plan});
    OneRun run(team, {first.work(), second.work()});
    ASSERT_EQ(run.Execute(), absl::OkStatus());
    for (TestWork* test : {&first, &second}) {
      const absl::StatusOr<WorkResult> result = test->Await();
      ASSERT_EQ(result.status(), absl::OkStatus());
      ASSERT_TRUE(result->plan.has_value());
      EXPECT_EQ(result->plan->kind, plan);
      EXPECT_EQ(result->plan->devices.size(), 2);
      EXPECT_GT(result->plan->predicted, absl::ZeroDuration());
    }
  }
}

// What was chosen for a request says why; what was asked for has no more to say
// than the plan itself.
TEST(GroupRunTest, ARequestRunsByThePlanThatWasChosenForIt) {
  TeamBackend team;
  TestWork chosen({}), asked({.plan = PlanKind::kZigzag});
  chosen.work()->plan = {PlanKind::kZigzag, "it is the quickest"};
  OneRun run(team, {chosen.work(), asked.work()});
  ASSERT_EQ(run.Execute(), absl::OkStatus());
  const std::string plans_own = TeamBackend::Report(PlanKind::kZigzag).why;
  for (const auto& [test, why] :
       {std::pair{&chosen, plans_own + "; it is the quickest"},
        std::pair{&asked, plans_own}}) {
    const absl::StatusOr<WorkResult> result = test->Await();
    ASSERT_EQ(result.status(), absl::OkStatus());
    ASSERT_TRUE(result->plan.has_value());
    EXPECT_EQ(result->plan->kind, PlanKind::kZigzag);
    EXPECT_EQ(result->plan->why, why);
  }
}

TEST(GroupRunTest, OneDevicesResultsHaveNoPlan) {
  IdentityBackend backend;
  TestWork test({.plan = PlanKind::kOneDevice});
  OneRun run(backend, {test.work()});
  ASSERT_EQ(run.Execute(), absl::OkStatus());
  const absl::StatusOr<WorkResult> result = test.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_FALSE(result->plan.has_value());
}

// What the first one had on the device is there until the stream is reset.
TEST(GroupRunTest, AnEarlyResultsChargeStaysForTheGroup) {
  WaitsForMarks backend;
  auto account = Account::Create(1000);
  TestWork first({.q_len = kPortionRows}), second({});
  first.work()->charge = account->TryCharge("a", 100);
  second.work()->charge = account->TryCharge("a", 10);
  OneRun run(backend, {first.work(), second.work()});
  std::vector<int64_t> held;
  backend.on_wait = [&] {
    if (run.completed.empty()) return;
    first.work()->charge.reset();
    first.Await().IgnoreError();
    held.push_back(account->held_bytes());
  };
  ASSERT_EQ(run.Execute(), absl::OkStatus());
  EXPECT_THAT(held, ElementsAre(110));
  EXPECT_EQ(account->held_bytes(), 10);
}

// Runs in four parts, and pauses after each if it may.
class InParts : public IdentityBackend {
 public:
  absl::StatusOr<double> OnProceed(Group, double share,
                                   absl::FunctionRef<bool()> pause) override {
    while (share < 1) {
      share += 0.25;
      if (pause()) break;
    }
    return share;
  }
};

TEST(GroupRunTest, APausedRunGoesOnOnAnotherThread) {
  InParts backend;
  TestWork test({.q_len = 9});
  OneRun run(backend, {test.work()});
  using Outcome = GroupRun::Outcome;
  EXPECT_EQ(run.Until([] { return true; }).value(), Outcome::kPaused);
  EXPECT_EQ(run.run.left(), 0.75);
  EXPECT_EQ(test.release_calls(), 1);
  EXPECT_EQ(run.run.work().request, test.work()->request);
  std::thread([&] {
    EXPECT_EQ(run.Until([] { return true; }).value(), Outcome::kPaused);
  }).join();
  EXPECT_EQ(run.run.left(), 0.5 / 0.75);
  EXPECT_THAT(run.completed, IsEmpty());
  EXPECT_EQ(run.Until([] { return false; }).value(), Outcome::kDone);
  absl::StatusOr<WorkResult> result = test.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  const HostSpan o = result->outputs[TensorId::kO].span();
  EXPECT_EQ(std::vector<std::byte>(o.begin(), o.end()), test.q());
}

// 40 MiB in, pieces of up to 4 MiB at a time.
TEST(GroupRunTest, AnUploadIsPausedToo) {
  InParts backend;
  TestWork test({.q_len = 1 << 16, .kv_len = 1 << 13, .dim = 128});
  OneRun run(backend, {test.work()});
  int uploading = 0, computing = 0;
  while (run.Until([] { return true; }).value() == GroupRun::Outcome::kPaused) {
    // Inputs stay until all are uploaded, and until then nothing has run.
    const bool loaded = test.release_calls() == 1;
    EXPECT_EQ(run.run.left() < 1, loaded);
    ++(loaded ? computing : uploading);
  }
  EXPECT_GE(uploading, 7);  // between Q's eight pieces at least
  EXPECT_EQ(computing, 3);
  absl::StatusOr<WorkResult> result = test.Await();
  ASSERT_EQ(result.status(), absl::OkStatus());
  const HostSpan o = result->outputs[TensorId::kO].span();
  EXPECT_EQ(std::vector<std::byte>(o.begin(), o.end()), test.q());
}

TEST(GroupRunTest, AnAbandonedRunHoldsNothing) {
  InParts backend;
  TestWork test({.q_len = 9});
  OneRun run(backend, {test.work()});
  ASSERT_TRUE(run.Until([] { return true; }).ok());
  EXPECT_GT(backend.memory().live_bytes(), 0);
  EXPECT_EQ(run.run.Abandon(), absl::OkStatus());
  EXPECT_EQ(backend.memory().live_bytes(), 0);
  EXPECT_NE(run.run.TakeStream(), nullptr);
}

TEST(GroupRunTest, AFaultSparesWhatHasCompletedBefore) {
  WaitsForMarks backend;
  backend.on_wait = [] {};
  // Uploads, kernels and the first result succeed.
  backend.Fail(Stage::kWaitFor, absl::InternalError("bus"), -1, 3);
  TestWork first({.q_len = kPortionRows}), second({.q_len = kPortionRows}),
      third({});
  OneRun run(backend, {first.work(), second.work(), third.work()});
  EXPECT_EQ(run.Execute(), absl::InternalError("bus"));
  EXPECT_THAT(run.completed, ElementsAre(first.work().get()));
  EXPECT_EQ(first.AwaitStatus(), absl::OkStatus());
  run.run.DropStream();
  EXPECT_THAT(run.run.TakeAll(), ElementsAre(second.work(), third.work()));
  EXPECT_EQ(backend.memory().live_bytes(), 0);
}

}  // namespace
}  // namespace attnd::server
