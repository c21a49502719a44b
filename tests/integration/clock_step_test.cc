// Server and client while someone sets the wall clock: nothing ends early or
// late. This program's own clock_gettime, which every library in it calls, is
// the clock that is set.

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attnd/client.h"
#include "server/server.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/slow_backend.h"

namespace {
std::atomic<int64_t> clock_is_off_by_seconds{0};
}

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) {
    now->tv_sec += clock_is_off_by_seconds;
  }
  return static_cast<int>(result);
}

namespace attnd::testing {
namespace {

constexpr int64_t kHour = 3600;

class ClockStepTest : public ::testing::Test {
 protected:
  using Pending = std::future<absl::StatusOr<client::Report>>;

  template <typename Device, typename... Arguments>
  Device* Start(Arguments... arguments) {
    auto device = std::make_unique<Device>(arguments...);
    Device* kept = device.get();
    std::vector<std::unique_ptr<Backend>> devices;
    devices.push_back(std::move(device));
    // One lane and no groups: what runs and what waits is plain.
    server::ServerOptions options;
    options.scheduler.lanes_per_device = 1;
    options.scheduler.max_batch_requests = 1;
    auto server = server::Server::Start(options, std::move(devices));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto client =
        client::Client::Create(absl::StrCat("127.0.0.1:", server_->port()), {});
    EXPECT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    return kept;
  }

  client::ForwardCall Call() {
    client::ForwardCall call;
    call.q = {client::DType::kF32, {1, 1, 1, 4}, in_};
    call.k = {client::DType::kF32, {1, 1, 1, 4}, in_};
    call.v = {client::DType::kF32, {1, 1, 1, 4}, in_};
    call.o = {client::DType::kF32, {1, 1, 1, 4}, out_};
    return call;
  }
  absl::Status Forward() {
    return client_->Forward(Call(), {.timeout = absl::Minutes(2)}).status();
  }
  Pending Send() {
    auto result =
        std::make_shared<std::promise<absl::StatusOr<client::Report>>>();
    client_->ForwardAsync(Call(), {.timeout = absl::Minutes(2)},
                          [result](absl::StatusOr<client::Report> report) {
                            result->set_value(std::move(report));
                          });
    return result->get_future();
  }
  // The test's time limit is the only one: every other is on trial.
  void AwaitQueued(int64_t requests) {
    while (server_->stats().queued_requests != requests) {
      std::this_thread::yield();
    }
  }

  float in_[4] = {1, 2, 3, 4}, out_[4] = {};
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<client::Client> client_;
};

TEST_F(ClockStepTest, TheClockIsSetForEveryLibraryOfThisProgram) {
  const auto before = std::chrono::system_clock::now();
  clock_is_off_by_seconds += 5 * kHour;
  EXPECT_GE(std::chrono::system_clock::now() - before, std::chrono::hours(5));
}

TEST_F(ClockStepTest, CallsAreAnsweredWhileItSteps) {
  Start<server::IdentityBackend>();
  for (int i = 0; i < 400; ++i) {
    // Four times back, then once forward.
    if (i % 20 == 10) {
      clock_is_off_by_seconds += i % 100 == 90 ? 4 * kHour : -kHour;
    }
    const absl::Status status = Forward();
    ASSERT_TRUE(status.ok()) << "call " << i << ": " << status;
  }
}

TEST_F(ClockStepTest, WhatWaitsDoesNotExpireAsItStepsForward) {
  auto* device = Start<server::ManualBackend>();
  std::vector<Pending> calls;
  calls.push_back(Send());
  device->Await();
  calls.push_back(Send());
  AwaitQueued(1);
  clock_is_off_by_seconds += kHour;
  // Whoever submits takes what has expired out of the queue.
  calls.push_back(Send());
  AwaitQueued(2);
  device->FinishAll();
  for (Pending& call : calls) {
    const absl::StatusOr<client::Report> report = call.get();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_LT(report->total, absl::Hours(1));
    EXPECT_LT(report->queue, absl::Hours(1));
  }
}

TEST_F(ClockStepTest, ADrainTakesNoLongerAsItStepsBack) {
  Start<server::SlowBackend>(absl::Hours(24));
  Pending running = Send();
  while (server_->stats().running_requests != 1) std::this_thread::yield();
  auto drained = std::async(
      std::launch::async, [this] { server_->Drain(absl::Milliseconds(200)); });
  // It knows by now when it is to end: an hour later, did it go by that clock.
  while (client_->CheckHealth("", {}).ok()) std::this_thread::yield();
  clock_is_off_by_seconds -= kHour;
  drained.get();
  EXPECT_TRUE(absl::IsUnavailable(running.get().status()));
}

}  // namespace
}  // namespace attnd::testing
