// Many threads at once: every admitted request completes exactly once, and at
// rest nothing is held.

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduling/scheduler.h"
#include "tests/server/fakes/fault_backend.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/test_work.h"

namespace attnd::server {
namespace {

constexpr int kThreads = 4;
constexpr int kRequests = 400;  // of each thread

WorkShape RandomShape(std::mt19937& random) {
  WorkShape shape;
  shape.op = random() % 4 == 0 ? Op::kBackward : Op::kForward;
  shape.q_len = random() % 200;
  shape.kv_len = random() % 50;
  shape.dim = random() % 2 == 0 ? 8 : 16;
  shape.priority = static_cast<Priority>(random() % 3);
  shape.client = std::to_string(random() % 3);
  if (random() % 4 == 0) {
    shape.deadline = MonotonicNow() + absl::Microseconds(random() % 500);
  }
  return shape;
}

struct Submitted {
  std::unique_ptr<TestWork> test;
  bool admitted = false;
};

// Submits, and cancels some of what it has submitted.
std::vector<Submitted> Hammer(Scheduler& scheduler, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Submitted> all;
  for (int i = 0; i < kRequests; ++i) {
    auto test = std::make_unique<TestWork>(RandomShape(random));
    const absl::Status status = scheduler.Submit(test->work());
    all.push_back({std::move(test), status.ok()});
    if (random() % 3 == 0) {
      scheduler.Cancel(all[random() % all.size()].test->work());
    }
    if (random() % 8 == 0) {
      EXPECT_GE(scheduler.stats().running_requests, 0);
    }
  }
  return all;
}

void ExpectEachDoneOnce(const std::vector<Submitted>& all) {
  for (const Submitted& submitted : all) {
    ASSERT_EQ(submitted.test->done_calls(), submitted.admitted ? 1 : 0);
    ASSERT_EQ(submitted.test->release_calls(), submitted.admitted ? 1 : 0);
  }
}

SchedulerOptions Tight() {
  SchedulerOptions options;
  options.lanes_per_device = 2;
  options.small_request_flops = 1e5;
  options.max_queue_requests = 50;
  options.memory_bytes = 1 << 20;
  options.max_idle_output_bytes = 1 << 16;
  return options;
}

// Hammers a scheduler from several threads and drains it in the middle of that
// or afterwards; returns how many requests succeeded.
int RunStress(std::vector<Backend*> backends, bool drain_early,
              const SchedulerOptions& options = Tight()) {
  auto created = Scheduler::Create(options, std::move(backends), nullptr);
  EXPECT_EQ(created.status(), absl::OkStatus());
  std::unique_ptr<Scheduler> scheduler = *std::move(created);
  const unsigned seed = std::random_device{}();
  std::vector<std::vector<Submitted>> all(kThreads);
  std::atomic<int> begun{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ++begun;
      all[t] = Hammer(*scheduler, seed + t);
    });
  }
  if (drain_early) {
    while (begun < kThreads) std::this_thread::yield();
    scheduler->Drain(MonotonicNow() + absl::Milliseconds(5));
  }
  for (std::thread& thread : threads) thread.join();
  scheduler->Drain(absl::InfiniteFuture());
  int succeeded = 0;
  for (std::vector<Submitted>& of_thread : all) {
    ExpectEachDoneOnce(of_thread);
    for (Submitted& submitted : of_thread) {
      if (submitted.admitted) succeeded += submitted.test->Await().ok();
    }
  }
  // What was cancelled while it was paused is ended by a lane.
  while (scheduler->stats().account_bytes > 0) std::this_thread::yield();
  const SchedulerStats stats = scheduler->stats();
  EXPECT_EQ(stats.queued_requests, 0);
  EXPECT_EQ(stats.queued_flops, 0);
  EXPECT_EQ(stats.running_requests, 0);
  return succeeded;
}

TEST(SchedulerStressTest, EveryRequestCompletesOnceUnderSubmitAndCancel) {
  IdentityBackend zero(0), one(1);
  EXPECT_GT(RunStress({&zero, &one}, /*drain_early=*/false), 0);
  EXPECT_LE(zero.memory().live_bytes() + one.memory().live_bytes(), 0);
}

TEST(SchedulerStressTest, EveryRequestCompletesOnceUnderDrain) {
  IdentityBackend backend;
  RunStress({&backend}, /*drain_early=*/true);
  EXPECT_EQ(backend.memory().live_bytes(), 0);
}

TEST(SchedulerStressTest, EveryRequestCompletesOnceWhenADeviceBreaks) {
  FaultBackend breaks(0);
  breaks.Fail(IdentityBackend::Stage::kRun, absl::InternalError("gone"), -1,
              20);
  IdentityBackend sound(1);
  RunStress({&breaks, &sound}, /*drain_early=*/false);
  EXPECT_EQ(breaks.memory().live_bytes() + sound.memory().live_bytes(), 0);
}

TEST(SchedulerStressTest, EveryRequestCompletesOnceWhenMemoryRunsOut) {
  FaultBackend backend;
  backend.Fail(IdentityBackend::Stage::kAllocate,
               absl::ResourceExhaustedError("full"), 300, 50);
  EXPECT_GT(RunStress({&backend}, /*drain_early=*/false), 0);
}

// Runs what has many queries for up to some milliseconds, and pauses as soon as
// it may.
class PausingBackend : public IdentityBackend {
 public:
  using IdentityBackend::IdentityBackend;

  absl::StatusOr<double> OnProceed(Group group, double share,
                                   absl::FunctionRef<bool()> pause) override {
    if (group.size() != 1 || group.front()->q_len < 100 || share >= 0.75) {
      return 1;
    }
    const absl::Time end = MonotonicNow() + absl::Milliseconds(2);
    while (MonotonicNow() < end && !group.front()->cancel->cancelled()) {
      if (pause()) return share + 0.25;
    }
    return 1;
  }
};

SchedulerOptions Pausing() {
  SchedulerOptions options = Tight();
  options.small_request_flops = options.max_batch_flops = 1e4;
  options.slice_time = absl::Milliseconds(1);
  return options;
}

TEST(SchedulerStressTest, EveryRequestCompletesOnceWhenSomeArePaused) {
  PausingBackend zero(0), one(1);
  EXPECT_GT(RunStress({&zero, &one}, /*drain_early=*/false, Pausing()), 0);
  EXPECT_LE(zero.memory().live_bytes() + one.memory().live_bytes(), 0);
}

TEST(SchedulerStressTest, EveryRequestCompletesOnceWhenPausedUnderDrain) {
  PausingBackend backend;
  RunStress({&backend}, /*drain_early=*/true, Pausing());
  EXPECT_EQ(backend.memory().live_bytes(), 0);
}

}  // namespace
}  // namespace attnd::server
