#include "client/attnload/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/client/attnload/fake_client.h"
#include "tests/client/attnload/plain_attention.h"

namespace attnd::attnload {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

Workload SmallWorkload() {
  return Workload({*ParseShape("s2:h1:d4"), *ParseShape("backward:s3:h1:d4")},
                  1);
}

Results RunOn(FakeClient& client, LoadOptions options) {
  Workload workload = SmallWorkload();
  return RunLoad(client, workload, options,
                 [](const Results&, int64_t, absl::Duration) {});
}

LoadOptions Options(bool open_loop, double level, int64_t requests) {
  LoadOptions options;
  options.open_loop = open_loop;
  options.level = level;
  options.requests = requests;
  options.warm_up = absl::ZeroDuration();
  options.check_share = 0;
  return options;
}

client::Report SomeReport() {
  client::Report report;
  report.flops = 100;
  report.compute = absl::Milliseconds(3);
  report.batch_requests = 2;
  return report;
}

TEST(Load, CountsEachRequestOnceByStatusCode) {
  FakeClient client([](int64_t call) -> absl::StatusOr<client::Report> {
    if (call % 10 == 3) return absl::ResourceExhaustedError("full");
    if (call % 10 == 7) return absl::DeadlineExceededError("late");
    return SomeReport();
  });
  const Results results = RunOn(client, Options(false, 4, 100));
  EXPECT_THAT(results.sent_by_code,
              ElementsAre(Pair(absl::StatusCode::kOk, 80),
                          Pair(absl::StatusCode::kDeadlineExceeded, 10),
                          Pair(absl::StatusCode::kResourceExhausted, 10)));
  EXPECT_EQ(results.ok, 80);
  EXPECT_EQ(results.failed, 20);
  EXPECT_EQ(results.latency.count(), 80);
  EXPECT_EQ(results.flops(), 8000);
  EXPECT_EQ(results.compute, absl::Milliseconds(240));
  EXPECT_EQ(results.first_error.at(absl::StatusCode::kResourceExhausted),
            "full");
}

TEST(Load, ClosedLoopKeepsAsManyInFlightAsAsked) {
  // Nothing is answered before the asked-for number has been seen at once.
  std::mutex mutex;
  std::condition_variable changed;
  int waiting = 0;
  FakeClient client([&](int64_t call) -> absl::StatusOr<client::Report> {
    std::unique_lock<std::mutex> lock(mutex);
    ++waiting;
    changed.notify_all();
    if (call < 5) changed.wait(lock, [&] { return waiting >= 5; });
    return SomeReport();
  });
  const Results results = RunOn(client, Options(false, 5, 50));
  EXPECT_EQ(results.in_flight_peak, 5);
  EXPECT_EQ(results.ok, 50);
}

// The server answers at once, but for the time from call 20 to the end of a
// stall. A closed loop would see one slow call; the open one sees everybody
// who came meanwhile.
TEST(Load, OpenLoopLatencyShowsAStallToAllItKeptWaiting) {
  constexpr auto kStall = std::chrono::milliseconds(200);
  std::mutex mutex;
  Clock::time_point stalled_until{};
  FakeClient client([&](int64_t call) -> absl::StatusOr<client::Report> {
    Clock::time_point until;
    {
      std::lock_guard<std::mutex> lock(mutex);
      // Whichever of the calls from 20 on is first here begins the stall, so
      // that none of them can pass while the thread of another waits for a
      // core.
      if (call >= 20 && stalled_until == Clock::time_point{}) {
        stalled_until = Clock::now() + kStall;
      }
      if (call >= 20) until = stalled_until;
    }
    std::this_thread::sleep_until(until);
    return SomeReport();
  });
  // 300 requests, all due within 30 ms or so and before the stall ends, with at
  // most 4 in flight: the others wait for their turn, and their latency counts
  // that.
  LoadOptions options = Options(true, 10'000, 300);
  options.max_in_flight = 4;
  const Results results = RunOn(client, options);
  EXPECT_EQ(results.ok, 300);
  // All but the 20 before it.
  EXPECT_GE(results.latency.Quantile(0.1), absl::Milliseconds(100));
}

TEST(Load, WarmUpIsCountedByCodeButNotMeasured) {
  FakeClient client([](int64_t) { return SomeReport(); });
  LoadOptions options = Options(true, 500, 20);
  options.warm_up = absl::Milliseconds(100);
  const Results results = RunOn(client, options);
  EXPECT_EQ(results.ok, 20);
  EXPECT_GT(results.sent_by_code.at(absl::StatusCode::kOk), 20);
}

TEST(Load, AnswersThatWereNeverWrittenAreFoundWrong) {
  FakeClient client([](int64_t) { return SomeReport(); });
  LoadOptions options = Options(false, 2, 50);
  options.check_share = 1;
  const Results results = RunOn(client, options);
  EXPECT_GT(results.answers_checked, 0);
  EXPECT_EQ(results.answers_wrong, results.answers_checked);
}

}  // namespace
}  // namespace attnd::attnload
