// The client against attnd in another process: many calls at once, cancelled
// calls, and servers that stop, die and come back.

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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

using ::attnd::testing::ServerProcess;

// Memory that nobody may read once it is gone. The address sanitizer sees who
// does, sendmsg included; without it the pages are unmapped, so that a write
// from them fails, and the connection with it.
class Memory {
 public:
#ifdef __SANITIZE_ADDRESS__
  explicit Memory(size_t floats) : floats_(new float[floats]) {}
  float* data() const { return floats_.get(); }

 private:
  const std::unique_ptr<float[]> floats_;
#else
  explicit Memory(size_t floats) : bytes_(floats * sizeof(float)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Memory() { munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  float* data() const { return static_cast<float*>(data_); }

 private:
  const size_t bytes_;
  void* data_;
#endif
};

// A forward whose K and V are one row: O is V's row, whatever Q is. Its memory
// goes with it.
struct Example {
  Example(int64_t tokens, int64_t dim)
      : size(tokens * dim), q(size), o(size), kv(dim) {
    absl::BitGen rng;
    std::fill(q.data(), q.data() + size, absl::Uniform(rng, 0.0f, 1.0f));
    std::fill(o.data(), o.data() + size, -1.0f);
    for (float& x : kv) x = absl::Uniform(rng, 0.0f, 1.0f);
    call.q = {DType::kF32, {1, tokens, 1, dim}, q.data()};
    call.k = call.v = {DType::kF32, {1, 1, 1, dim}, kv.data()};
    call.o = {DType::kF32, {1, tokens, 1, dim}, o.data()};
  }

  void ExpectAnswered() const {
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(o.data()[i], kv[i % kv.size()]) << i;
    }
  }

  const size_t size;
  Memory q, o;
  std::vector<float> kv;
  ForwardCall call;
};

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

class LiveServerTest : public ::testing::Test {
 protected:
  void Start(const ClientOptions& options = {},
             const std::vector<std::string>& flags = {}) {
    auto server = ServerProcess::Start(ATTND_BINARY, flags);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto client = Client::Create(target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    ExpectServes();
  }
  virtual std::string target() const { return server_->tcp(); }

  void ExpectServes() {
    Example example(2, 4);
    const auto report = client_->Forward(example.call, {absl::Seconds(60)});
    ASSERT_TRUE(report.ok()) << report.status();
    example.ExpectAnswered();
  }

  // The client goes first: its calls need the server to end.
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
};

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

// Over a TCP connection or a unix socket.
class EverySocketTest : public LiveServerTest,
                        public ::testing::WithParamInterface<bool> {
 protected:
  std::string target() const override {
    return GetParam() ? server_->unix_socket() : server_->tcp();
  }
};
std::string SocketName(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "Unix" : "Tcp";
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

INSTANTIATE_TEST_SUITE_P(Sockets, EverySocketTest, ::testing::Bool(),
                         SocketName);

// A stopped server takes nothing more than the sockets' buffers hold: the
// write is stuck, and no deadline ends that, only who breaks the connection.
class StoppedServerTest : public EverySocketTest {
 protected:
  static constexpr absl::Duration kDeadline = absl::Milliseconds(300);
  static constexpr absl::Duration kKeepaliveTime = absl::Seconds(1);
  static constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(1);

  void StartWithKeepalive(int connections) {
    ClientOptions options;
    options.connections = connections;
    options.keepalive_time = kKeepaliveTime;
    options.keepalive_timeout = kKeepaliveTimeout;
    Start(options);
    // Every connection, before it is needed.
    for (int i = 1; i < connections; ++i) ExpectServes();
  }

  void ExpectEndedInTime(absl::Time start, const absl::Status& status) {
    EXPECT_LE(absl::Now() - start,
              kDeadline + kKeepaliveTime + kKeepaliveTimeout);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status))
        << status;
  }

  // Whatever was still being written to the server now goes on, if it may.
  void Resume() {
    server_->Signal(SIGCONT);
    ExpectServes();
  }
};

TEST_P(StoppedServerTest, SyncCallsEndAndLetGoOfTheirMemory) {
  StartWithKeepalive(1);
  for (int round = 0; round < 2; ++round) {
    server_->Signal(SIGSTOP);
    auto example = std::make_unique<Example>(1 << 14, 128);  // 8 MiB
    const absl::Time start = absl::Now();
    const auto report = client_->Forward(example->call, {kDeadline});
    example.reset();
    ExpectEndedInTime(start, report.status());
    Resume();
  }
}

TEST_P(StoppedServerTest, AsyncCallsEndAndLetGoOfTheirMemory) {
  constexpr int kCalls = 12;
  StartWithKeepalive(2);
  std::vector<std::unique_ptr<Example>> examples;
  for (int i = 0; i < kCalls; ++i) {
    examples.push_back(std::make_unique<Example>(1 << 14, 128));  // 8 MiB
  }
  absl::BlockingCounter ended(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    // Some are being uploaded, some wait behind them, some come later.
    if (i == kCalls / 2) server_->Signal(SIGSTOP);
    client_->ForwardAsync(examples[i]->call, {kDeadline},
                          [this, &ended, &example = examples[i],
                           start = absl::Now()](absl::StatusOr<Report> report) {
                            example.reset();
                            if (!report.ok())
                              ExpectEndedInTime(start, report.status());
                            ended.DecrementCount();
                          });
  }
  ended.Wait();
  Resume();
}

// The write is another call's, which has all the time in the world.
TEST_P(StoppedServerTest, SmallCallsEndBehindAStuckOne) {
  StartWithKeepalive(1);
  server_->Signal(SIGSTOP);
  auto stuck = std::make_unique<Example>(1 << 14, 128);
  absl::Notification ended;
  client_->ForwardAsync(stuck->call, {absl::Seconds(60)},
                        [&](absl::StatusOr<Report>) {
                          stuck.reset();
                          ended.Notify();
                        });
  Example small(1, 64);
  const absl::Time start = absl::Now();
  const auto report = client_->Forward(small.call, {kDeadline});
  ExpectEndedInTime(start, report.status());
  Resume();
  ended.WaitForNotification();
}

TEST_P(StoppedServerTest, DestructionWaitsForCallsNoLongerThanThat) {
  StartWithKeepalive(1);
  server_->Signal(SIGSTOP);
  auto example = std::make_unique<Example>(1 << 14, 128);
  bool done = false;
  const absl::Time start = absl::Now();
  client_->ForwardAsync(example->call, {kDeadline},
                        [&](absl::StatusOr<Report> report) {
                          example.reset();
                          ExpectEndedInTime(start, report.status());
                          done = true;
                        });
  client_.reset();
  EXPECT_TRUE(done);
  // Half a second for threads of gRPC's to end.
  EXPECT_LE(
      absl::Now() - start,
      kDeadline + kKeepaliveTime + kKeepaliveTimeout + absl::Milliseconds(500));
}

TEST_P(StoppedServerTest, CancelledCallsEndAndLetGoOfTheirMemory) {
  StartWithKeepalive(1);
  server_->Signal(SIGSTOP);
  auto example = std::make_unique<Example>(1 << 14, 128);
  absl::Notification ended;
  absl::Status status;
  const auto cancel = client_->ForwardAsync(example->call, {absl::Seconds(60)},
                                            [&](absl::StatusOr<Report> report) {
                                              example.reset();
                                              status = report.status();
                                              ended.Notify();
                                            });
  cancel();
  const absl::Time start = absl::Now();
  ended.WaitForNotification();
  EXPECT_LE(absl::Now() - start, kKeepaliveTime + kKeepaliveTimeout);
  EXPECT_TRUE(absl::IsCancelled(status) || absl::IsUnavailable(status))
      << status;
  Resume();
}

INSTANTIATE_TEST_SUITE_P(Sockets, StoppedServerTest, ::testing::Bool(),
                         SocketName);

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
