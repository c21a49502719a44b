// The client against attnd in another process: many calls at once, cancelled
// and expired calls, and servers that die and come back.

#include "tests/client/live_server.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "attnd/client.h"
#include "server/server.h"
#include "tests/hang_limit.h"
#include "tests/integration/http_get.h"
#include "tests/integration/process.h"
#include "tests/server/fakes/manual_backend.h"

namespace attnd::client {
namespace {

using ::attnd::testing::Eventually;
using ::attnd::testing::kHangLimit;

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
  // What gRPC's five pools may differ by: each has up to two threads a
  // processor.
  const int spare_grpc_threads =
      5 * 2 * static_cast<int>(std::thread::hardware_concurrency());
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
      client_->ForwardAsync(example->call, {kHangLimit},
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
    (void)Eventually([&threads] {
      threads = CountThreads();
      return threads.unnamed <= kOurThreads;
    });
    all_started.Notify();
    answers.Wait();
    for (const auto& example : examples) example->ExpectAnswered();
    return threads;
  };
  const Threads few = run(8);
  const Threads many = run(kCalls);
  EXPECT_EQ(few.unnamed, kOurThreads);
  EXPECT_EQ(many.unnamed, kOurThreads);
  EXPECT_LE(many.all, few.all + spare_grpc_threads);
}

TEST_F(LiveServerTest, StreamsAddAThreadForEachConnectionWhileTheClientLives) {
  constexpr int kConnections = 3;
  ClientOptions options;
  options.connections = kConnections;
  const auto expect_unnamed = [](int expected) {
    EXPECT_TRUE(Eventually([=] { return CountThreads().unnamed == expected; }))
        << CountThreads().unnamed << " instead of " << expected;
  };
  Start(options);
  expect_unnamed(2);  // this one, and the executor's
  const Example example((int64_t{24} << 20) / 1024, 256);
  CallOptions how;
  how.timeout = kHangLimit;
  how.transport = TransportKind::kStream;
  const auto report = client_->Forward(example.call, how);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->streams, 2 * kConnections);
  expect_unnamed(2 + kConnections);
  client_.reset();
  expect_unnamed(1);
}

// From several threads, some of them cancelled, and nobody waits for them but
// the client's destruction.
TEST_F(LiveServerTest, StreamsThatAreUnderWayEndWithTheClient) {
  constexpr int kThreads = 4, kCalls = 4, kRounds = 3;
  ClientOptions options;
  options.connections = 3;
  Start(options);
  for (int round = 0; round < kRounds; ++round) {
    auto client = Client::Create(target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    std::atomic<int> ended{0};
    std::vector<std::unique_ptr<Example>> examples(kThreads * kCalls);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kCalls; ++i) {
          auto& example = examples[thread * kCalls + i];
          example = std::make_unique<Example>(10'000 * (1 + i), 64);
          CallOptions how;
          how.timeout = kHangLimit;
          how.transport = TransportKind::kStream;
          const auto cancel = (*client)->ForwardAsync(
              example->call, how, [&](absl::StatusOr<Report> report) {
                EXPECT_TRUE(report.ok() || absl::IsCancelled(report.status()))
                    << report.status();
                example.reset();  // nobody may need it now
                ++ended;
              });
          if (i % 2 == round % 2) cancel();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    client->reset();
    EXPECT_EQ(ended, kThreads * kCalls);
  }
  ExpectServes();
}

TEST_F(LiveServerTest, CancelledCallsEndAndTheServerServesOn) {
  Start();
  absl::BlockingCounter ended(64);
  std::vector<std::unique_ptr<Example>> examples(64);
  for (int i = 0; i < 64; ++i) {
    examples[i] = std::make_unique<Example>(1 << (i % 16), 16);
    const auto cancel = client_->ForwardAsync(
        examples[i]->call, {kHangLimit},
        [&, &example = examples[i]](absl::StatusOr<Report> report) {
          EXPECT_TRUE(report.ok() || absl::IsCancelled(report.status()))
              << report.status();
          example.reset();  // nobody may need it now
          ended.DecrementCount();
        });
    cancel();
  }
  ended.Wait();
  ExpectServes();
}

// Of a server that is stopped no answer can cross the cancel.
TEST_F(LiveServerTest, CancelledCallsAreCancelled) {
  constexpr int kCalls = 16;
  Start();
  server_->Stop();
  absl::BlockingCounter ended(kCalls);
  std::vector<std::unique_ptr<Example>> examples(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    examples[i] = std::make_unique<Example>(1 << i, 16);
    const auto cancel = client_->ForwardAsync(
        examples[i]->call, {}, [&](absl::StatusOr<Report> report) {
          EXPECT_TRUE(absl::IsCancelled(report.status())) << report.status();
          ended.DecrementCount();
        });
    cancel();
  }
  server_->Continue();
  ended.Wait();
  ExpectServes();
}

// On a device that the test steps by hand.
TEST(FullQueueTest, RetriesWaitForRoom) {
  constexpr int kCalls = 4;  // few enough for the budget of a burst
  auto device = std::make_unique<server::ManualBackend>();
  server::ManualBackend& manual = *device;
  std::vector<std::unique_ptr<Backend>> devices;
  devices.push_back(std::move(device));
  server::ServerOptions server_options;
  server_options.scheduler.lanes_per_device = 1;
  server_options.scheduler.max_batch_requests = 1;
  server_options.scheduler.max_queue_requests = 1;
  server_options.metrics_port = 0;
  const auto server = server::Server::Start(server_options, std::move(devices));
  ASSERT_TRUE(server.ok()) << server.status();
  ClientOptions options;
  options.max_attempts = 100;
  options.retry_budget = 1;
  const auto client =
      Client::Create(absl::StrCat("127.0.0.1:", (*server)->port()), options);
  ASSERT_TRUE(client.ok()) << client.status();

  std::vector<std::unique_ptr<Example>> examples;
  absl::BlockingCounter answers(kCalls);
  std::atomic<int> attempts{0};
  for (int i = 0; i < kCalls; ++i) {
    examples.push_back(std::make_unique<Example>(16, 64));
    (*client)->ForwardAsync(examples.back()->call, {kHangLimit},
                            [&](absl::StatusOr<Report> report) {
                              EXPECT_TRUE(report.ok()) << report.status();
                              attempts += report.ok() ? report->attempts : 1;
                              answers.DecrementCount();
                            });
  }
  // Nothing leaves the queue before some call has found it full.
  EXPECT_TRUE(Eventually([&] {
    return testing::MetricValue(
               testing::HttpGet((*server)->metrics_port(), "/metrics"),
               "attnd_requests_total{code=\"RESOURCE_EXHAUSTED\",method="
               "\"Forward\"}")
               .value_or(0) > 0;
  }));
  manual.FinishAll();
  answers.Wait();
  EXPECT_GT(attempts, kCalls);
}

// Deadlines that pass at any moment of an upload: gRPC may say so while it
// still writes from the caller's memory, for a moment that some call hits.
TEST_P(EverySocketTest, ExpiredCallsLetGoOfTheirMemory) {
  ClientOptions options;
  options.max_attempts = 1;  // so that a connection that broke shows
  Start(options);
  absl::BitGen rng;
  int expired = 0;
  for (int i = 0; i < 50; ++i) {
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
  server_->Stop();
  auto example = std::make_unique<Example>(1 << 14, 128);
  absl::Notification ended;
  std::optional<absl::StatusOr<Report>> result;
  client_->ForwardAsync(example->call, {kHangLimit},
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
  // A loopback address that no other program listens on: its ports are free.
  const std::string host = absl::StrCat("--host=127.", 1 + getpid() % 254, ".",
                                        getpid() / 254 % 256, ".77");
  Start(options, {host});
  const std::string address = server_->tcp();
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  const auto next = ServerProcess::Start(
      ATTND_BINARY, {host, "--port=" + address.substr(address.rfind(':') + 1)});
  ASSERT_TRUE(next.ok()) << next.status();
  ExpectServes();
}

// Listens at `path` and answers nobody.
class DeafListener {
 public:
  explicit DeafListener(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
              0);
    EXPECT_EQ(listen(fd_, 1), 0);
  }
  ~DeafListener() { close(fd_); }

  // Waits for a connection, and closes it.
  void HangUp() const { close(accept(fd_, nullptr, nullptr)); }

 private:
  const int fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

// Two servers one after the other behind one address.
TEST_F(LiveServerTest, RetriesRideOutARestart) {
  const testing::TempFolder folder;
  const std::string address = folder.File("attnd");
  const auto point_address_at = [&](const std::string& socket) {
    std::filesystem::create_symlink(socket, address + ".new");
    std::filesystem::rename(address + ".new", address);
  };
  const auto socket_of = [](const ServerProcess& server) {
    return server.unix_socket().substr(strlen("unix:"));
  };
  Start();
  point_address_at(socket_of(*server_));
  ClientOptions options;
  options.max_attempts = 10;
  options.max_backoff = absl::Minutes(1);  // 25 s in all at the least
  const auto client = Client::Create("unix:" + address, options);
  ASSERT_TRUE(client.ok()) << client.status();
  Example example(2, 4);
  ASSERT_TRUE((*client)->Forward(example.call, {kHangLimit}).ok());

  // The first attempt finds nobody who answers.
  auto nobody = std::make_unique<DeafListener>(folder.File("nobody"));
  point_address_at(folder.File("nobody"));
  server_->Signal(SIGKILL);
  ASSERT_TRUE(server_->Wait().has_value());
  Example again(2, 4);
  absl::Notification ended;
  std::optional<absl::StatusOr<Report>> result;
  (*client)->ForwardAsync(again.call, {kHangLimit},
                          [&](absl::StatusOr<Report> report) {
                            result = std::move(report);
                            ended.Notify();
                          });
  nobody->HangUp();
  nobody.reset();
  Start();
  point_address_at(socket_of(*server_));
  ended.WaitForNotification();
  ASSERT_TRUE(result->ok()) << result->status();
  EXPECT_GT((*result)->attempts, 1);
  again.ExpectAnswered();
}

}  // namespace
}  // namespace attnd::client
