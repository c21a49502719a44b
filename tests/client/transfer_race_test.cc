// Transfers whose streams run on threads of their own, while somebody cancels.

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "client/transfer.h"
#include "tests/client/transfer_testing.h"
#include "tests/thinned.h"

namespace attnd::client {
namespace {

// Runs what it is given, in order, on one thread.
class Lane {
 public:
  Lane() : thread_([this] { Loop(); }) {}
  ~Lane() {
    Post(nullptr);
    thread_.join();
  }
  void Post(std::function<void()> task) {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.NotifyOne();
  }

 private:
  void Loop() {
    for (;;) {
      std::function<void()> task;
      {
        MutexLock lock(mutex_);
        changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return !tasks_.empty();
        });
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      if (!task) return;
      task();
    }
  }

  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

class ServedStream;

// A server in memory, which answers as soon as it has the inputs.
class Server {
 public:
  explicit Server(const ChunkedForward& forward) : forward_(forward) {}

  void Take(ServedStream& stream, const std::string& bytes);
  void Closed(ServedStream& stream);
  void Add(std::shared_ptr<ServedStream> stream) {
    MutexLock lock(mutex_);
    streams_.push_back(std::move(stream));
  }
  void Clear() {
    std::vector<std::shared_ptr<ServedStream>> streams;
    MutexLock lock(mutex_);
    streams.swap(streams_);
    lock.Unlock();
  }

 private:
  const ChunkedForward& forward_;
  Mutex mutex_;
  std::vector<std::shared_ptr<ServedStream>> streams_ ABSL_GUARDED_BY(mutex_);
  ReceivedInputs received_ ABSL_GUARDED_BY(mutex_);
};

// Writes are taken on one thread, and messages come on another.
class ServedStream final : public ByteStream {
 public:
  ServedStream(Server& server, StreamEvents& events)
      : server_(server), events_(events) {}

  void Start(const std::vector<wire::Piece>& pieces) override { Write(pieces); }
  void Write(const std::vector<wire::Piece>& pieces) override {
    {
      // What is written to after its end does not look at the memory.
      MutexLock lock(mutex_);
      if (over_) return;
      ++writes_;
    }
    std::string bytes;
    for (const wire::Piece& piece : pieces) {
      bytes += piece.owned;
      bytes.append(piece.borrowed.data(), piece.borrowed.size());
    }
    out_.Post([this, bytes = std::move(bytes)] {
      server_.Take(*this, bytes);
      events_.OnWritten(true);
      bool last = false;
      {
        MutexLock lock(mutex_);
        last = --writes_ == 0 && over_;
      }
      if (last) Finish();
    });
  }
  void CloseWrites() override {
    out_.Post([this] { server_.Closed(*this); });
  }
  void Cancel() override { End(absl::CancelledError("cancelled")); }

  void Send(std::string message) {
    in_.Post([this, message = std::move(message)] {
      {
        MutexLock lock(mutex_);
        if (over_) return;
      }
      const absl::string_view fragment = message;
      events_.OnMessage(absl::MakeConstSpan(&fragment, 1));
    });
  }
  void End(absl::Status status) {
    in_.Post([this, status = std::move(status)]() mutable {
      bool last = false;
      {
        MutexLock lock(mutex_);
        if (std::exchange(over_, true)) return;
        status_ = std::move(status);
        last = writes_ == 0;
      }
      if (last) Finish();
    });
  }

 private:
  void Finish() { events_.OnEnd(status_); }

  Server& server_;
  StreamEvents& events_;
  Mutex mutex_;
  int writes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_;
  Lane out_, in_;
};

void Server::Take(ServedStream& stream, const std::string& bytes) {
  MutexLock lock(mutex_);
  const bool had = received_.inputs_sent.has_value();
  received_.Take(bytes);
  if (received_.header.has_forward() && received_.joins.empty() &&
      received_.chunks.empty() && !received_.inputs_sent.has_value()) {
    stream.Send(Admitted(received_.header.streams()));
  }
  if (had || !received_.inputs_sent.has_value()) return;
  // The first stream ends when the client has closed it.
  for (int chunk = 0; chunk < 3; ++chunk) {
    streams_[chunk % streams_.size()]->Send(ChunkOf(1, forward_.o, chunk));
  }
  streams_[0]->Send(forward_.Response());
  for (size_t i = 1; i < streams_.size(); ++i) {
    streams_[i]->End(absl::OkStatus());
  }
}

void Server::Closed(ServedStream& stream) {
  bool is_main = false;
  {
    MutexLock lock(mutex_);
    is_main = !streams_.empty() && streams_[0].get() == &stream;
  }
  if (is_main) stream.End(absl::OkStatus());
}

class ServedTransport final : public Transport {
 public:
  explicit ServedTransport(Server& server) : server_(server) {}

  std::function<void()> Start(const std::string&,
                              const std::vector<wire::Piece>&,
                              const CallHeaders&, Completion) override {
    return nullptr;
  }
  uint32_t TakeTurn() override { return 0; }
  absl::StatusOr<std::shared_ptr<ByteStream>> OpenStream(
      const std::string&, uint32_t, const CallHeaders&,
      StreamEvents& events) override {
    auto stream = std::make_shared<ServedStream>(server_, events);
    server_.Add(stream);
    return stream;
  }

 private:
  Server& server_;
};

// Returns its outcome. Afterwards nobody looks at its memory.
absl::Status RunOnce(int streams, bool cancel) {
  auto forward = std::make_unique<ChunkedForward>();
  const ChunkedForward served = *forward;
  Server server(served);
  ServedTransport transport(server);
  TaskQueue queue;
  Report report;
  TransferSpec spec;
  spec.parts = *EncodeForwardExchange(forward->call, {}, {streams, 0});
  spec.decode = [&](Fragments fragments) {
    return DecodeForwardExchange(fragments, spec.parts.outputs, report);
  };
  bool done = false;
  absl::Status status;
  const std::shared_ptr<Transfer> transfer = Transfer::Start(
      spec, transport, queue, CallHeaders(), [&](const TransferResult& result) {
        status = result.status;
        if (status.ok()) {
          EXPECT_EQ(forward->got_o, served.o);
        }
        forward.reset();
        done = true;
      });
  std::thread canceller([&] {
    if (cancel) transfer->Cancel();
  });
  while (!done) queue.RunOne();
  canceller.join();
  server.Clear();
  return status;
}

TEST(TransferRaceTest, StreamsRunSideBySide) {
  for (int round = 0; round < 100; round += testing::kProblemStep) {
    EXPECT_TRUE(RunOnce(1 + round % 4, false).ok());
  }
}

TEST(TransferRaceTest, CancellingAtAnyTime) {
  for (int round = 0; round < 200; round += testing::kProblemStep) {
    const absl::Status status = RunOnce(1 + round % 4, true);
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
}

}  // namespace
}  // namespace attnd::client
