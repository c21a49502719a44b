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

#include "absl/time/clock.h"
#include "tests/integration/http_get.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"

namespace attnd::testing {
namespace {

constexpr absl::Duration kDrain = absl::Seconds(2);

std::unique_ptr<ServerProcess> StartAttnd() {
  auto process = ServerProcess::Start(
      ATTND_BINARY, {"--drain_time=2s", "--memory_limit=256MiB"});
  EXPECT_TRUE(process.ok()) << process.status();
  return *std::move(process);
}

// Its exit status, which must come within the drain time and 5 s.
int ExitStatus(ServerProcess& process) {
  return process.Wait(kDrain + absl::Seconds(5)).value_or(-1);
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
  while (load.ok() < 50) absl::SleepFor(absl::Milliseconds(1));
  process->Signal(SIGTERM);
  EXPECT_EQ(ExitStatus(*process), 0) << process->log();
  while (load.unavailable() + load.other() < 8) {
    absl::SleepFor(absl::Milliseconds(1));
  }
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
    while (load.ok() < 50) absl::SleepFor(absl::Milliseconds(1));
    process->Signal(SIGTERM);
    EXPECT_EQ(ExitStatus(*process), 0) << process->log();
  }
  for (const pid_t client : clients) {
    kill(client, SIGKILL);
    waitpid(client, nullptr, 0);
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
  EXPECT_EQ((*process)->Wait(absl::Milliseconds(200)), std::nullopt);
  (*process)->Signal(SIGTERM);
  EXPECT_EQ((*process)->Wait(absl::Seconds(5)), 1) << (*process)->log();
}

}  // namespace
}  // namespace attnd::testing
