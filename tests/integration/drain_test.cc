// SIGTERM to attnd in a process of its own.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "tests/integration/http_get.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"

namespace attnd::testing {
namespace {

constexpr absl::Duration kDrain = absl::Seconds(2);

std::unique_ptr<ServerProcess> StartAttnd(absl::Duration drain = kDrain) {
  auto process = ServerProcess::Start(
      ATTND_BINARY, {"--drain_time=" + absl::FormatDuration(drain),
                     "--memory_limit=256MiB", "--metrics_port=0"});
  EXPECT_TRUE(process.ok()) << process.status();
  return *std::move(process);
}

// Its exit status, which must come within the drain time and 5 s.
int ExitStatus(ServerProcess& process, absl::Duration drain = kDrain) {
  return process.Wait(drain + absl::Seconds(5)).value_or(-1);
}

// Requests admitted and not yet answered.
double Admitted(const ServerProcess& process) {
  const std::string metrics = process.Metrics();
  return MetricValue(metrics, "attnd_queue_requests").value_or(-1) +
         MetricValue(metrics, "attnd_running_requests").value_or(-1);
}

// Polls until `done` says so; false after 60 s.
template <typename Done>
bool Within60Seconds(Done done) {
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!done()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

using Calls = std::vector<std::unique_ptr<PendingForward>>;

// `count` calls of `request` on a connection each, returned once the server
// has admitted them all and answered none.
Calls AdmitAll(const ServerProcess& process, int count,
               const attn::v1::ForwardRequest& request) {
  Calls calls;
  for (int i = 0; i < count; ++i) {
    calls.push_back(
        std::make_unique<PendingForward>(Connect(process.tcp()), request));
  }
  EXPECT_TRUE(Within60Seconds([&] { return Admitted(process) == count; }))
      << Admitted(process) << " of " << count << "\n"
      << process.log();
  return calls;
}

TEST(Drain, AnIdleServerExitsAtOnce) {
  const auto process = StartAttnd();
  const auto channel = Connect(process->tcp());
  EXPECT_EQ(Health(channel), "SERVING");
  const absl::Time start = absl::Now();
  process->Signal(SIGTERM);
  EXPECT_EQ(ExitStatus(*process), 0) << process->log();
  EXPECT_LT(absl::Now() - start, kDrain);
}

TEST(Drain, WhatWasAdmittedGetsItsResult) {
  constexpr absl::Duration kEnough = absl::Seconds(60);
  const auto process = StartAttnd(kEnough);
  const auto request = RandomForward(kSanitized ? 8192 : 16384, 2, 1);
  const Calls calls = AdmitAll(*process, 8, request);
  process->Signal(SIGTERM);
  for (const auto& call : calls) {
    EXPECT_TRUE(call->Wait().ok()) << call->Wait();
    EXPECT_EQ(call->response().o().data().size(), request.v().data().size());
  }
  // With nothing left to do it does not stay for the rest of the time.
  EXPECT_EQ(ExitStatus(*process, absl::ZeroDuration()), 0) << process->log();
}

TEST(Drain, WhatIsNotDoneInTimeIsUnavailable) {
  constexpr absl::Duration kShort = absl::Seconds(1);
  const auto process = StartAttnd(kShort);
  // Half a minute of work each.
  const Calls calls = AdmitAll(*process, 4, RandomForward(131072, 4, 1));
  const absl::Time start = absl::Now();
  process->Signal(SIGTERM);
  for (const auto& call : calls) {
    EXPECT_TRUE(absl::IsUnavailable(call->Wait())) << call->Wait();
    EXPECT_GE(absl::Now() - start, kShort);
  }
  EXPECT_EQ(process->Wait(start + kShort + absl::Seconds(5) - absl::Now()), 0)
      << process->log();
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
  const auto process = StartAttnd();
  Load load(process->tcp(), 8);
  EXPECT_TRUE(Within60Seconds([&] { return load.ok() >= 50; })) << load.ok();
  process->Signal(SIGTERM);
  EXPECT_EQ(ExitStatus(*process), 0) << process->log();
  EXPECT_TRUE(
      Within60Seconds([&] { return load.unavailable() + load.other() == 8; }));
  EXPECT_EQ(load.other(), 0);
}

TEST(Drain, AStoppedClientDoesNotHoldItUp) {
  const auto process = StartAttnd();
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
    EXPECT_TRUE(Within60Seconds([&] { return load.ok() >= 50; })) << load.ok();
    process->Signal(SIGTERM);
    EXPECT_EQ(ExitStatus(*process), 0) << process->log();
  }
  for (const pid_t client : clients) {
    kill(client, SIGKILL);
    waitpid(client, nullptr, 0);
  }
}

TEST(Drain, OtherSignalsAreLoggedAndEndNothing) {
  const auto process = StartAttnd();
  for (const int signal :
       {SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR,
        SIGXCPU, SIGXFSZ, SIGPIPE, SIGRTMIN, SIGRTMAX}) {
    process->Signal(signal);
    EXPECT_EQ(Health(Connect(process->tcp())), "SERVING") << signal;
  }
  EXPECT_TRUE(Within60Seconds([&] {
    return absl::StrContains(process->log(), "Hangup: ignored") &&
           absl::StrContains(process->log(), "User defined signal 1: ignored");
  })) << process->log();
  process->Signal(SIGTERM);
  EXPECT_EQ(ExitStatus(*process), 0) << process->log();
}

TEST(Drain, InterruptAndQuitDrainAsWell) {
  for (const int signal : {SIGINT, SIGQUIT}) {
    const auto process = StartAttnd();
    const auto request = RandomForward(kSanitized ? 2048 : 8192, 2, 1);
    const Calls calls = AdmitAll(*process, 4, request);
    process->Signal(signal);
    for (const auto& call : calls) {
      EXPECT_TRUE(call->Wait().ok() || absl::IsUnavailable(call->Wait()))
          << call->Wait();
    }
    EXPECT_EQ(ExitStatus(*process), 0) << process->log();
  }
}

TEST(Drain, ASecondSignalExitsAtOnce) {
  auto process = ServerProcess::Start(ATTND_BINARY,
                                      {"--drain_time=1h", "--metrics_port=0"});
  ASSERT_TRUE(process.ok()) << process.status();
  const auto channel = Connect((*process)->tcp());
  // Long enough that the drain would wait for it.
  PendingForward slow(channel, RandomForward(65536, 3, 64),
                      absl::InfiniteDuration());
  while (MetricValue((*process)->Metrics(), "attnd_running_requests") != 1) {
    ASSERT_FALSE(slow.WaitFor(absl::Milliseconds(1))) << slow.Wait();
  }
  (*process)->Signal(SIGTERM);
  (*process)->Signal(SIGHUP);
  EXPECT_EQ((*process)->Wait(absl::Milliseconds(200)), std::nullopt);
  (*process)->Signal(SIGTERM);
  EXPECT_EQ((*process)->Wait(absl::Seconds(5)), 1) << (*process)->log();
}

}  // namespace
}  // namespace attnd::testing
