// Streams over real gRPC, one by one, against a server in this process that
// sends back what it gets.

#include "client/grpc_stream.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "client/credentials.h"
#include "client/grpc_transport.h"
#include "tests/hang_limit.h"
#include "tests/notification.h"

namespace attnd::client {
namespace {

using ::attnd::testing::kHangLimit;

class EchoReactor final : public grpc::ServerGenericBidiReactor {
 public:
  EchoReactor() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    ok ? StartWrite(&message_) : Finish(grpc::Status::OK);
  }
  void OnWriteDone(bool ok) override {
    ok ? StartRead(&message_) : Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
};

class EchoService final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new EchoReactor();
  }
};

// How many streams have yet to end.
class Count {
 public:
  explicit Count(int count) : left_(count) {}
  void Decrement() {
    MutexLock lock(mutex_);
    if (--left_ == 0) none_.NotifyAll();
  }
  bool WaitForNone() {
    MutexLock lock(mutex_);
    return none_.WaitUntil(
        lock, MonotonicNow() + kHangLimit,
        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return left_ <= 0; });
  }

 private:
  Mutex mutex_;
  Condition none_;
  int left_ ABSL_GUARDED_BY(mutex_);
};

// Says when the thread that has touched it is gone.
struct GoesWithThread {
  ~GoesWithThread() { ++gone; }
  inline static std::atomic<int> gone = 0;
};

// A stream that sends `messages` one after another, each when the one before
// has come back, from memory that is there until it has ended.
class Echoed final : public StreamEvents {
 public:
  Echoed(size_t bytes, int messages, Count& running)
      : data_(bytes, 'x'), messages_(messages), running_(running) {}

  void Open(GrpcTransport& transport, uint32_t turn,
            absl::Time deadline = absl::InfiniteFuture()) {
    auto opened = transport.OpenStream("/any/Method", turn,
                                       {.deadline = deadline}, *this);
    ASSERT_TRUE(opened.ok()) << opened.status();
    stream = *std::move(opened);
  }
  void Start() { stream->Start(Message()); }

  void OnWritten(bool ok) override {
    EXPECT_FALSE(ended_);
    NoteThread();
    written += ok;
    if (ok) Go();
  }
  void OnMessage(absl::Span<const absl::string_view> fragments) override {
    EXPECT_FALSE(ended_);
    NoteThread();
    size_t bytes = 0;
    for (const absl::string_view fragment : fragments) bytes += fragment.size();
    EXPECT_EQ(bytes, data_.size());
    ++read;
    Go();
  }
  void OnEnd(absl::Status with) override {
    EXPECT_FALSE(ended_);
    ended_ = true;
    status = std::move(with);
    // Whoever reads it after this is found by the address sanitizer.
    std::string().swap(data_);
    running_.Decrement();
  }

  std::shared_ptr<ByteStream> stream;
  std::set<std::thread::id> threads;
  int written = 0, read = 0;
  absl::Status status;

 private:
  // Once the last message has been taken and has come back, in either order.
  void Go() {
    if (written != read) return;
    if (read < messages_) return stream->Write(Message());
    stream->CloseWrites();
  }
  std::vector<wire::Piece> Message() const { return {{"", data_}}; }
  void NoteThread() {
    thread_local const GoesWithThread goes;
    (void)&goes;
    threads.insert(std::this_thread::get_id());
  }

  std::string data_;
  const int messages_;
  bool ended_ = false;
  Count& running_;
};

// Over a TCP connection or a unix socket.
class GrpcStreamTest : public ::testing::TestWithParam<bool> {
 protected:
  GrpcStreamTest() {
    const std::string path =
        absl::StrCat(::testing::TempDir(), "/stream", getpid());
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(GetParam() ? "unix:" + path : "127.0.0.1:0",
                             grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(&service_);
    builder.SetMaxReceiveMessageSize(-1);
    server_ = builder.BuildAndStart();
    target_ = GetParam() ? "unix:" + path : absl::StrCat("127.0.0.1:", port);
  }

  std::unique_ptr<GrpcTransport> Connect(int connections) const {
    ClientOptions options;
    options.connections = connections;
    return std::make_unique<GrpcTransport>(
        target_, options, *Credentials::Load(target_, options));
  }

  EchoService service_;
  std::unique_ptr<grpc::Server> server_;
  std::string target_;
};

TEST_P(GrpcStreamTest, AConnectionsStreamsHaveOneThreadWhichEndsWithIt) {
  constexpr int kStreams = 4, kMessages = 20;
  for (const int connections : {1, 2}) {
    const int gone = GoesWithThread::gone;
    std::set<std::thread::id> threads;
    auto transport = Connect(connections);
    Count running(kStreams);
    std::vector<std::unique_ptr<Echoed>> streams;
    for (int i = 0; i < kStreams; ++i) {
      streams.push_back(std::make_unique<Echoed>(100'000, kMessages, running));
      streams[i]->Open(*transport, i);
      streams[i]->Start();
    }
    ASSERT_TRUE(running.WaitForNone());
    transport.reset();
    for (const auto& echoed : streams) {
      EXPECT_TRUE(echoed->status.ok()) << echoed->status;
      EXPECT_EQ(echoed->written, kMessages);
      EXPECT_EQ(echoed->read, kMessages);
      EXPECT_EQ(echoed->threads.size(), 1);
      threads.merge(echoed->threads);
    }
    EXPECT_EQ(threads.size(), connections);
    EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
    EXPECT_EQ(GoesWithThread::gone, gone + connections);
  }
}

TEST_P(GrpcStreamTest, OneThatIsCancelledBeforeItStartsEnds) {
  const auto transport = Connect(1);
  Count running(1);
  Echoed echoed(100'000, 1, running);
  echoed.Open(*transport, 0);
  echoed.stream->Cancel();
  echoed.Start();
  ASSERT_TRUE(running.WaitForNone());
  EXPECT_TRUE(absl::IsCancelled(echoed.status)) << echoed.status;
  EXPECT_EQ(echoed.read, 0);
}

TEST_P(GrpcStreamTest, WhatComesAfterItsEndDoesNothing) {
  const auto transport = Connect(1);
  Count running(1);
  Echoed echoed(100'000, 1, running);
  echoed.Open(*transport, 0);
  echoed.Start();
  ASSERT_TRUE(running.WaitForNone());
  const std::string data(100'000, 'x');
  echoed.stream->Write({{"", data}});
  echoed.stream->CloseWrites();
  echoed.stream->Cancel();
  EXPECT_EQ(echoed.written, 1);
  EXPECT_TRUE(echoed.status.ok()) << echoed.status;
}

TEST_P(GrpcStreamTest, WithoutAServerItIsUnavailable) {
  auto transport = Connect(1);
  {
    Count running(1);
    Echoed echoed(100, 1, running);
    echoed.Open(*transport, 0);
    echoed.Start();
    ASSERT_TRUE(running.WaitForNone());
  }
  server_->Shutdown();
  Count running(1);
  Echoed echoed(100, 1, running);
  auto opened = transport->OpenStream("/any/Method", 0, CallHeaders(), echoed);
  if (opened.ok()) {
    echoed.stream = *std::move(opened);
    echoed.Start();
    ASSERT_TRUE(running.WaitForNone());
  } else {
    echoed.status = opened.status();
  }
  EXPECT_TRUE(absl::IsUnavailable(echoed.status)) << echoed.status;
}

// Some are cancelled before they start, some while they write for the first
// time, some between two messages; some reach their deadline, some their end.
TEST_P(GrpcStreamTest, ManyThatEndInEveryWayAtOnceAllEnd) {
  constexpr int kThreads = 4, kStreams = 24, kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    auto transport = Connect(3);
    Count running(kThreads * kStreams);
    std::vector<std::unique_ptr<Echoed>> streams(kThreads * kStreams);
    std::vector<std::thread> threads;
    Count opened(kThreads);
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        const auto mine = streams.begin() + thread * kStreams;
        for (int i = 0; i < kStreams; ++i) {
          mine[i] = std::make_unique<Echoed>(1 << (6 + i % 14), 3, running);
          mine[i]->Open(*transport, i,
                        i % 4 == 3 ? MonotonicNow() + absl::Milliseconds(i)
                                   : absl::InfiniteFuture());
          if (i % 4 == 1) mine[i]->stream->Cancel();
          mine[i]->Start();
        }
        opened.Decrement();
        ASSERT_TRUE(opened.WaitForNone());
        // Each cancels another's.
        const auto other = streams.begin() + (thread + 1) % kThreads * kStreams;
        for (int i = round; i < kStreams; i += 2) other[i]->stream->Cancel();
      });
    }
    const bool ended = running.WaitForNone();
    ASSERT_TRUE(ended);
    for (std::thread& thread : threads) thread.join();
    transport.reset();
    for (const auto& echoed : streams) {
      EXPECT_TRUE(echoed->status.ok() || absl::IsCancelled(echoed->status) ||
                  absl::IsDeadlineExceeded(echoed->status))
          << echoed->status;
      EXPECT_TRUE(echoed->read == 3 || !echoed->status.ok());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sockets, GrpcStreamTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Unix" : "Tcp";
                         });

}  // namespace
}  // namespace attnd::client
