#ifndef ATTND_TESTS_SERVER_SCHEDULER_TESTING_H_
#define ATTND_TESTS_SERVER_SCHEDULER_TESTING_H_

// What the scheduler's tests share.

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"
#include "server/scheduling/scheduler.h"

namespace attnd::server {

// One lane: whatever is running, the rest waits.
inline SchedulerOptions OneLane() {
  SchedulerOptions options;
  options.lanes_per_device = 1;
  return options;
}

inline std::unique_ptr<Scheduler> MakeScheduler(
    const SchedulerOptions& options, std::vector<Backend*> backends) {
  auto scheduler = Scheduler::Create(options, std::move(backends), nullptr);
  EXPECT_EQ(scheduler.status(), absl::OkStatus());
  return *std::move(scheduler);
}

inline std::vector<std::byte> Bytes(HostSpan span) {
  return {span.begin(), span.end()};
}

inline void ExpectRetry(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  std::optional<absl::Duration> delay = wire::RetryDelay(status);
  ASSERT_TRUE(delay.has_value());
  EXPECT_THAT(*delay, ::testing::AllOf(::testing::Ge(absl::Milliseconds(10)),
                                       ::testing::Le(absl::Seconds(5))));
}

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_SCHEDULER_TESTING_H_
