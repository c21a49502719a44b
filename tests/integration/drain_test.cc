// SIGTERM to attnd in a process of its own.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"

namespace attnd::testing {
namespace {

std::unique_ptr<ServerProcess> StartAttnd(
    absl::Duration drain, const std::vector<std::string>& more = {}) {
  std::vector<std::string> flags = {
      "--drain_time=" + absl::FormatDuration(drain), "--memory_limit=256MiB",
      "--metrics_port=0"};
  flags.insert(flags.end(), more.begin(), more.end());
  auto process = ServerProcess::Start(ATTND_BINARY, flags);
  EXPECT_TRUE(process.ok()) << process.status();
  return *std::move(process);
}

// A drain that nothing in a test waits for to the end.
constexpr absl::Duration kLong = absl::Hours(1);

constexpr char kRunning[] = "attnd_running_requests";
constexpr char kQueued[] = "attnd_queue_requests";

bool Becomes(const ServerProcess& process, const char* series, double value) {
  return Eventually([&] { return process.Metric(series) == value; });
}

using Calls = std::vector<std::unique_ptr<PendingForward>>;

// `count` calls that end only when they are cancelled, admitted by a server
// that has as many lanes for them as `running`.
Calls HoldLanes(const ServerProcess& process, int count, int running) {
  Calls calls;
  for (int i = 0; i < count; ++i) {
    calls.push_back(std::make_unique<PendingForward>(
        Connect(process.tcp()), EndlessForward(), absl::InfiniteDuration()));
  }
  EXPECT_TRUE(Becomes(process, kRunning, running) &&
              Becomes(process, kQueued, count - running))
      << process.log();
  return calls;
}

TEST(Drain, AnIdleServerDoesNotStayForTheDrainTime) {
  const auto process = StartAttnd(kLong);
  const auto channel = Connect(process->tcp());
  EXPECT_EQ(Health(channel), "SERVING");
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(), 0) << process->log();
}

TEST(Drain, WhatWasAdmittedGetsItsResult) {
  const auto process =
      StartAttnd(kLong, {"--lanes=1", "--max_batch_requests=1"});
  const Calls holding = HoldLanes(*process, 1, 1);
  const auto request = RandomForward(256, 4, 64);
  Calls calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(
        std::make_unique<PendingForward>(Connect(process->tcp()), request));
  }
  ASSERT_TRUE(Becomes(*process, kQueued, 8)) << process->log();
  process->Signal(SIGTERM);
  EXPECT_TRUE(process->AwaitLog("draining for up to 1h")) << process->log();
  EXPECT_TRUE(Eventually([&] {
    return Health(Connect(process->tcp())) == "NOT_SERVING";
  })) << process->log();
  // They wait behind this one.
  for (const auto& call : calls) {
    EXPECT_FALSE(call->WaitFor(absl::ZeroDuration())) << call->Wait();
  }
  holding[0]->Cancel();
  for (const auto& call : calls) {
    EXPECT_TRUE(call->Wait().ok()) << call->Wait();
    EXPECT_EQ(call->response().o().data().size(), request.v().data().size());
  }
  // With nothing left to do it does not stay for the rest of the time.
  EXPECT_EQ(process->Wait(), 0) << process->log();
}

TEST(Drain, WhatIsNotDoneInTimeIsUnavailable) {
  constexpr absl::Duration kShort = absl::Milliseconds(200);
  const auto process = StartAttnd(kShort, {"--lanes=1"});
  const Calls calls = HoldLanes(*process, 2, 1);
  const absl::Time start = MonotonicNow();
  process->Signal(SIGTERM);
  for (const auto& call : calls) {
    EXPECT_TRUE(absl::IsUnavailable(call->Wait())) << call->Wait();
    EXPECT_GE(MonotonicNow() - start, kShort);
  }
  EXPECT_EQ(process->Wait(), 0) << process->log();
}

// Closed loops of calls from `threads` threads until one is UNAVAILABLE.
class Load {
 public:
  Load(const std::string& target, int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, target] { Run(target); });
    }
  }
  ~Load() {
    for (std::thread& thread : threads_) thread.join();
  }
  int ok() const { return ok_; }
  int unavailable() const { return unavailable_; }
  int other() const { return other_; }

 private:
  void Run(const std::string& target) {
    const auto channel = Connect(target);
    const attn::v1::ForwardRequest request = RandomForward(256, 4, 64);
    while (true) {
      PendingForward call(channel, request);
      if (call.Wait().ok()) {
        ++ok_;
        continue;
      }
      const bool unavailable = absl::IsUnavailable(call.Wait());
      EXPECT_TRUE(unavailable) << call.Wait();
      ++(unavailable ? unavailable_ : other_);
      return;
    }
  }

  std::vector<std::thread> threads_;
  std::atomic<int> ok_{0}, unavailable_{0}, other_{0};
};

TEST(Drain, UnderLoadEveryCallGetsAResultOrUnavailable) {
  const auto process = StartAttnd(absl::Seconds(1));
  Load load(process->tcp(), 8);
  EXPECT_TRUE(Eventually([&] { return load.ok() >= 50; })) << load.ok();
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(), 0) << process->log();
  EXPECT_TRUE(
      Eventually([&] { return load.unavailable() + load.other() == 8; }));
  EXPECT_EQ(load.other(), 0);
}

TEST(Drain, AStoppedClientDoesNotHoldItUp) {
  const auto process = StartAttnd(absl::Milliseconds(200));
  std::vector<pid_t> clients;
  for (int i = 0; i < 3; ++i) {
    const pid_t client = fork();
    if (client == 0) {
      execl(ATTND_STOPPED_CLIENT, ATTND_STOPPED_CLIENT, process->tcp().c_str(),
            nullptr);
      _exit(127);
    }
    int status = 0;
    waitpid(client, &status, WUNTRACED);
    ASSERT_TRUE(WIFSTOPPED(status));
    clients.push_back(client);
  }
  {
    Load load(process->tcp(), 4);
    EXPECT_TRUE(Eventually([&] { return load.ok() >= 50; })) << load.ok();
    process->Signal(SIGTERM);
    EXPECT_EQ(process->Wait(), 0) << process->log();
  }
  for (const pid_t client : clients) {
    kill(client, SIGKILL);
    waitpid(client, nullptr, 0);
  }
}

TEST(Drain, OtherSignalsAreLoggedAndEndNothing) {
  const auto process = StartAttnd(kLong);
  for (const int signal :
       {SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR,
        SIGXCPU, SIGXFSZ, SIGPIPE, SIGRTMIN, SIGRTMAX}) {
    process->Signal(signal);
    EXPECT_EQ(Health(Connect(process->tcp())), "SERVING") << signal;
  }
  EXPECT_TRUE(process->AwaitLog("Hangup: ignored")) << process->log();
  EXPECT_TRUE(process->AwaitLog("User defined signal 1: ignored"))
      << process->log();
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(), 0) << process->log();
}

TEST(Drain, InterruptAndQuitDrainAsWell) {
  for (const int signal : {SIGINT, SIGQUIT}) {
    const auto process = StartAttnd(kLong);
    const Calls calls = HoldLanes(*process, 1, 1);
    process->Signal(signal);
    EXPECT_TRUE(process->AwaitLog("draining for up to 1h")) << process->log();
    EXPECT_FALSE(calls[0]->WaitFor(absl::ZeroDuration())) << calls[0]->Wait();
    calls[0]->Cancel();
    EXPECT_EQ(process->Wait(), 0) << process->log();
  }
}

TEST(Drain, ASecondSignalExitsAtOnce) {
  const auto process = StartAttnd(kLong);
  const Calls calls = HoldLanes(*process, 1, 1);
  process->Signal(SIGTERM);
  EXPECT_TRUE(process->AwaitLog("draining for up to 1h")) << process->log();
  // This one does not count.
  process->Signal(SIGHUP);
  EXPECT_TRUE(process->AwaitLog("Hangup: ignored")) << process->log();
  EXPECT_EQ(process->Wait(absl::ZeroDuration()), std::nullopt);
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(), 1) << process->log();
}

}  // namespace
}  // namespace attnd::testing
