// The client against attnd in another process: many calls at once, cancelled
// and expired calls, and servers that die and come back.

#include "tests/client/live_server.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/random/random.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "attnd/client.h"
#include "tests/integration/process.h"

namespace attnd::client {
namespace {

// This process' threads; gRPC names its own, which come and go in pools of a
// bounded size, and the others bear the program's name.
struct Threads {
  int all = 0;
  int unnamed = 0;
};
Threads CountThreads() {
  const auto name = [](const std::string& task) {
    std::string line;
    std::getline(std::ifstream("/proc/self/task/" + task + "/comm"), line);
    return line;
  };
  const std::string own_name = name(std::to_string(getpid()));
  Threads threads;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    if (task->d_name[0] == '.') continue;
    ++threads.all;
    threads.unnamed += name(task->d_name) == own_name;
  }
  closedir(tasks);
  return threads;
}

TEST_F(LiveServerTest, AThousandCallsInFlightAddNoThreads) {
  constexpr int kCalls = 1000;
  constexpr int kSpareGrpcThreads = 4;
  constexpr int kOurThreads = 2;  // this one, and the executor's
  Start();
  // The first callback blocks the executor, so that no call is over before all
  // are in flight; gRPC has then started what it needs.
  const auto run = [this](int calls) {
    std::vector<std::unique_ptr<Example>> examples;
    for (int i = 0; i < calls; ++i) {
      examples.push_back(std::make_unique<Example>(1 + i % 40, 64));
    }
    absl::Notification all_started;
    absl::BlockingCounter answers(calls);
    std::atomic<int> answered{0};
    for (const auto& example : examples) {
      client_->ForwardAsync(example->call, {absl::Seconds(120)},
                            [&](absl::StatusOr<Report> report) {
                              EXPECT_TRUE(report.ok()) << report.status();
                              all_started.WaitForNotification();
                              ++answered;
                              answers.DecrementCount();
                            });
    }
    EXPECT_EQ(answered, 0);
    // A thread that gRPC has just started bears our name until it has its own.
    Threads threads = CountThreads();
    const absl::Time give_up = absl::Now() + absl::Seconds(10);
    while (threads.unnamed > kOurThreads && absl::Now() < give_up) {
      threads = CountThreads();
    }
    all_started.Notify();
    answers.Wait();
    for (const auto& example : examples) example->ExpectAnswered();
    return threads;
  };
  const Threads few = run(8);
  const Threads many = run(kCalls);
  EXPECT_EQ(few.unnamed, kOurThreads);
  EXPECT_EQ(many.unnamed, kOurThreads);
  EXPECT_LE(many.all, few.all + kSpareGrpcThreads);
}

TEST_F(LiveServerTest, CancelledCallsEndAndTheServerServesOn) {
  Start();
  absl::BlockingCounter ended(64);
  std::atomic<int> cancelled{0};
  std::vector<std::unique_ptr<Example>> examples(64);
  for (int i = 0; i < 64; ++i) {
    examples[i] = std::make_unique<Example>(1 << (i % 16), 16);
    const auto cancel = client_->ForwardAsync(
        examples[i]->call, {absl::Seconds(60)},
        [&, &example = examples[i]](absl::StatusOr<Report> report) {
          EXPECT_TRUE(report.ok() || absl::IsCancelled(report.status()))
              << report.status();
          cancelled += !report.ok();
          example.reset();  // nobody may need it now
          ended.DecrementCount();
        });
    cancel();
  }
  ended.Wait();
  EXPECT_GT(cancelled, 0);
  ExpectServes();
}

TEST_F(LiveServerTest, RetriesWaitForRoomInAFullQueue) {
  constexpr int kCalls = 4;  // few enough for the budget of a burst
  ClientOptions options;
  options.max_attempts = 100;
  options.retry_budget = 1;
  Start(options, {"--max_queue_requests=1", "--max_batch_requests=1"});
  std::vector<float> kv(1024 * 64, 0.25f);
  int calls = 0, attempts = 0;
  // Until one has found the queue full: a fast server may empty it in time.
  while (attempts == calls) {
    std::vector<std::unique_ptr<Example>> examples;
    absl::BlockingCounter answers(kCalls);
    for (int i = 0; i < kCalls; ++i, ++calls) {
      examples.push_back(std::make_unique<Example>(2048, 64));
      ForwardCall& call = examples.back()->call;
      call.k = call.v = {DType::kF32, {1, 1024, 1, 64}, kv.data()};
      client_->ForwardAsync(call, {absl::Seconds(120)},
                            [&](absl::StatusOr<Report> report) {
                              EXPECT_TRUE(report.ok()) << report.status();
                              attempts += report.ok() ? report->attempts : 1;
                              answers.DecrementCount();
                            });
    }
    answers.Wait();
    ASSERT_LT(calls, 1000);
  }
}

// Deadlines that pass at any moment of an upload: gRPC may say so while it
// still writes from the caller's memory, for a moment that some call hits.
TEST_P(EverySocketTest, ExpiredCallsLetGoOfTheirMemory) {
  ClientOptions options;
  options.max_attempts = 1;  // so that a connection that broke shows
  Start(options);
  absl::BitGen rng;
  int expired = 0;
  for (int i = 0; i < 100; ++i) {
    auto example = std::make_unique<Example>(1 << 15, 128);  // 16 MiB
    const auto report = client_->Forward(
        example->call, {absl::Milliseconds(1) * absl::Uniform(rng, 1.0, 12.0)});
    example.reset();
    EXPECT_TRUE(report.ok() || absl::IsDeadlineExceeded(report.status()))
        << report.status();
    expired += !report.ok();
    ExpectServes();
  }
  EXPECT_GT(expired, 0);
}

TEST_P(EverySocketTest, AServerThatDiesMidUploadIsUnavailable) {
  ClientOptions options;
  options.initial_backoff = absl::Milliseconds(1);
  Start(options);
  server_->Signal(SIGSTOP);
  auto example = std::make_unique<Example>(1 << 14, 128);
  absl::Notification ended;
  std::optional<absl::StatusOr<Report>> result;
  client_->ForwardAsync(example->call, {absl::Seconds(60)},
                        [&](absl::StatusOr<Report> report) {
                          example.reset();
                          result = std::move(report);
                          ended.Notify();
                        });
  server_->Signal(SIGKILL);
  ended.WaitForNotification();
  EXPECT_TRUE(absl::IsUnavailable(result->status())) << result->status();
}

INSTANTIATE_TEST_SUITE_P(Sockets, EverySocketTest, ::testing::Bool(),
                         SocketName);

// With no attempt to spare, and nobody who looks at the network between calls.
TEST_F(LiveServerTest, AnIdleClientFindsTheNextServer) {
  ClientOptions options;
  options.max_attempts = 1;
  Start(options);
  const std::string address = server_->tcp();
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(absl::Seconds(30)), 0);
  const auto next = ServerProcess::Start(
      ATTND_BINARY, {"--port=" + address.substr(address.rfind(':') + 1)});
  ASSERT_TRUE(next.ok()) << next.status();
  ExpectServes();
}

// Two servers one after the other behind one address.
TEST_F(LiveServerTest, RetriesRideOutARestart) {
  const testing::TempFolder folder;
  const std::string address = folder.File("attnd");
  const auto point_address_at = [&](const ServerProcess& server) {
    const std::string socket = server.unix_socket().substr(strlen("unix:"));
    std::filesystem::create_symlink(socket, address + ".new");
    std::filesystem::rename(address + ".new", address);
  };
  Start();
  point_address_at(*server_);
  ClientOptions options;
  options.max_attempts = 10;
  options.max_backoff = absl::Seconds(1);
  const auto client = Client::Create("unix:" + address, options);
  ASSERT_TRUE(client.ok()) << client.status();
  Example example(2, 4);
  ASSERT_TRUE((*client)->Forward(example.call, {absl::Seconds(60)}).ok());

  server_->Signal(SIGKILL);
  ASSERT_TRUE(server_->Wait(absl::Seconds(30)).has_value());
  Example again(2, 4);
  absl::Notification ended;
  std::optional<absl::StatusOr<Report>> result;
  (*client)->ForwardAsync(again.call, {absl::Seconds(60)},
                          [&](absl::StatusOr<Report> report) {
                            result = std::move(report);
                            ended.Notify();
                          });
  Start();
  point_address_at(*server_);
  ended.WaitForNotification();
  ASSERT_TRUE(result->ok()) << result->status();
  EXPECT_GT((*result)->attempts, 1);
  again.ExpectAnswered();
}

}  // namespace
}  // namespace attnd::client
