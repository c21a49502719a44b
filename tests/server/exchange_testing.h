#ifndef ATTND_TESTS_SERVER_EXCHANGE_TESTING_H_
#define ATTND_TESTS_SERVER_EXCHANGE_TESTING_H_

// Exchanges over streams that the test steps by hand, without gRPC.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "attn/v1/attention.pb.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"
#include "server/front/exchange_call.h"
#include "server/transfer/transfer_table.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {

namespace pb = ::attn::v1;

// A message in memory of its own, poisoned when it goes.
class TestMessage final : public ReceivedMessage {
 public:
  explicit TestMessage(std::string bytes) : bytes_(std::move(bytes)) {
    // Cut, as gRPC's slices cut it.
    const absl::string_view all = bytes_;
    for (size_t at = 0; at < all.size(); at += kPiece) {
      fragments_.push_back(all.substr(at, kPiece));
    }
  }
  ~TestMessage() override { bytes_.assign(bytes_.size(), '\xa5'); }

  absl::Span<const absl::string_view> fragments() const override {
    return fragments_;
  }

 private:
  static constexpr size_t kPiece = 8192;
  std::string bytes_;
  std::vector<absl::string_view> fragments_;
};

// What a stream was asked for. Nothing happens by itself.
class FakeMessageStream final : public MessageStream {
 public:
  void Read() override {
    MutexLock lock(mutex_);
    if (status_.has_value()) return;  // it may come that late
    EXPECT_FALSE(reading_) << "two reads at once";
    reading_ = true;
    changed_.NotifyAll();
  }
  void Write(absl::Span<const wire::Piece> pieces,
             absl::AnyInvocable<void()> release, bool /*here*/) override {
    std::string bytes;
    for (const wire::Piece& piece : pieces) {
      bytes += piece.owned;
      bytes.append(piece.borrowed.data(), piece.borrowed.size());
    }
    MutexLock lock(mutex_);
    EXPECT_FALSE(release_.has_value()) << "two writes at once";
    EXPECT_FALSE(status_.has_value()) << "written after the end";
    EXPECT_TRUE(written_.emplace_back().ParseFromString(bytes));
    release_.emplace(std::move(release));
    changed_.NotifyAll();
  }
  void Finish(const absl::Status& status) override {
    MutexLock lock(mutex_);
    EXPECT_FALSE(release_.has_value()) << "ended while it writes";
    EXPECT_FALSE(status_.has_value()) << "ended twice";
    status_ = status;
    changed_.NotifyAll();
  }
  void Cut() override {
    MutexLock lock(mutex_);
    cut_ = true;
    changed_.NotifyAll();
  }

  // Waits until it is being read, and ends that.
  void AwaitRead() {
    MutexLock lock(mutex_);
    changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return reading_ || status_.has_value();
    });
    EXPECT_TRUE(reading_) << "ended instead: " << *status_;
    reading_ = false;
  }
  bool TakeRead() {
    MutexLock lock(mutex_);
    return std::exchange(reading_, false);
  }
  // Waits until it is being read, has ended or has written something.
  void AwaitAny() {
    MutexLock lock(mutex_);
    changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return reading_ || status_.has_value() || !written_.empty();
    });
  }
  bool has_written() {
    MutexLock lock(mutex_);
    return !written_.empty();
  }
  // Waits for what is written next; it is under way until LetGo.
  pb::ExchangeResponse AwaitWritten() {
    MutexLock lock(mutex_);
    changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !written_.empty() || status_.has_value();
    });
    if (written_.empty()) {
      ADD_FAILURE() << "ended instead: " << *status_;
      return {};
    }
    pb::ExchangeResponse response = std::move(written_.front());
    written_.pop_front();
    return response;
  }
  bool is_writing() {
    MutexLock lock(mutex_);
    return release_.has_value();
  }
  // False: nothing is under way.
  bool LetGo() {
    std::optional<absl::AnyInvocable<void()>> release;
    {
      MutexLock lock(mutex_);
      release = std::exchange(release_, std::nullopt);
    }
    if (!release.has_value()) return false;
    if (*release) (*release)();
    return true;
  }
  absl::Status AwaitEnd() {
    MutexLock lock(mutex_);
    changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return status_.has_value();
    });
    return *status_;
  }
  bool has_ended() {
    MutexLock lock(mutex_);
    return status_.has_value();
  }
  void AwaitCut() {
    MutexLock lock(mutex_);
    changed_.Wait(
        lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return cut_; });
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<pb::ExchangeResponse> written_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::AnyInvocable<void()>> release_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
};

// A stream as its client sees it.
class TestStream {
 public:
  TestStream(const ServiceParts& parts, Sender sender,
             std::optional<std::string> request_bytes = {},
             absl::Time deadline = absl::InfiniteFuture())
      : stream_(std::make_shared<FakeMessageStream>()),
        call_(std::make_shared<ExchangeCall>(
            parts, stream_,
            CallHeader{
                std::move(sender), deadline, std::move(request_bytes), {}})) {
    call_->Start();
  }
  ~TestStream() { Close(); }

  FakeMessageStream& fake() { return *stream_; }

  // Sends once it is being read.
  void Send(const pb::ExchangeRequest& request) {
    SendBytes(request.SerializeAsString());
  }
  void SendBytes(std::string bytes) {
    stream_->AwaitRead();
    call_->OnMessage(std::make_unique<TestMessage>(std::move(bytes)));
  }
  // Ends the client's side, once it is being read: now, or when the test waits
  // for the stream.
  void HalfClose() {
    if (stream_->TakeRead()) return call_->OnReadEnd();
    closes_ = true;
  }
  // What the server sent next, taken at once.
  pb::ExchangeResponse Take() {
    while (closes_ && !stream_->has_written()) Wait();
    pb::ExchangeResponse response = stream_->AwaitWritten();
    Taken();
    return response;
  }
  // The last that was written is.
  void Taken(bool ok = true) {
    if (stream_->LetGo()) call_->OnWritten(ok);
  }
  absl::Status AwaitEnd() {
    while (closes_ && !stream_->has_ended()) Wait();
    return stream_->AwaitEnd();
  }
  // The connection is lost, or the client cancels.
  void Break() {
    cancelled_ = true;
    const bool reading = stream_->TakeRead();
    call_->OnCancel();
    if (reading) call_->OnReadEnd();
    Taken(false);
  }
  // As gRPC does once a stream has ended.
  void Close() {
    if (call_ == nullptr) return;
    if (!stream_->has_ended()) Break();
    // What had begun before may come after that, and the end after both.
    while (!stream_->has_ended()) {
      if (stream_->TakeRead()) call_->OnReadEnd();
      Taken(false);
      std::this_thread::yield();
    }
    stream_->LetGo();
    std::exchange(call_, nullptr)->OnDone(cancelled_);
  }

 private:
  void Wait() {
    stream_->AwaitAny();
    if (stream_->has_ended() || !stream_->TakeRead()) return;
    closes_ = false;
    call_->OnReadEnd();
  }

  std::shared_ptr<FakeMessageStream> stream_;
  std::shared_ptr<ExchangeCall> call_;
  bool cancelled_ = false;
  bool closes_ = false;  // its side, once it is read
};

class ExchangeTest : public ::testing::Test {
 protected:
  static constexpr int64_t kMiB = 1 << 20;
  static constexpr int64_t kChunk = 64 << 10;

  // Q, K and V of [1, len, 1, 64], f32, random; LSE is inline.
  struct Tensors {
    explicit Tensors(int64_t len, uint32_t seed = 1);
    int64_t len;
    std::string q, k, v;
    const std::string& of(int number) const {
      return number == 1 ? q : number == 2 ? k : v;
    }
  };
  static constexpr int64_t kRowBytes = 64 * 4;
  static pb::ExchangeRequest Header(const Tensors& tensors, int streams = 1);
  static pb::ExchangeRequest Chunk(const Tensors& tensors, int number,
                                   int64_t index);
  static pb::ExchangeRequest InputsSent(int streams = 0);
  static pb::ExchangeRequest JoinTo(const pb::Admitted& admitted);
  static int64_t Chunks(const Tensors& tensors) {
    return (tensors.len * kRowBytes + kChunk - 1) / kChunk;
  }

  ExchangeTest() { UseScheduler({}, {&backend_}); }
  ~ExchangeTest() override;
  void UseScheduler(const SchedulerOptions& options,
                    std::vector<Backend*> backends);
  void StallAfter(absl::Duration time);

  std::unique_ptr<TestStream> Open(Sender sender = {"client", "a"},
                                   std::optional<std::string> bytes = {}) {
    return std::make_unique<TestStream>(parts_, std::move(sender),
                                        std::move(bytes));
  }
  // Opens a transfer, whose admission it takes.
  std::unique_ptr<TestStream> Begin(const Tensors& tensors, int streams = 1) {
    auto stream = Open();
    stream->Send(Header(tensors, streams));
    admitted_ = stream->Take().admitted();
    EXPECT_EQ(admitted_.transfer().size(), 16);
    EXPECT_EQ(admitted_.chunk_bytes(), kChunk);
    return stream;
  }
  std::unique_ptr<TestStream> Join() {
    auto stream = Open({"client", "b"});
    stream->Send(JoinTo(admitted_));
    return stream;
  }
  void SendAll(TestStream& stream, const Tensors& tensors) {
    for (int number : {1, 2, 3}) {
      for (int64_t i = 0; i < Chunks(tensors); ++i) {
        stream.Send(Chunk(tensors, number, i));
      }
    }
    stream.Send(InputsSent());
  }
  // Takes results until the response, which it returns; O into `o`.
  pb::ForwardResponse TakeResults(TestStream& stream, std::string& o);
  static void Put(const pb::Chunk& chunk, std::string& o);
  // Takes what a joined stream still brings, which may come after the response,
  // until it ends.
  static void TakeRest(TestStream& joined, std::string& o);
  // Waits until nothing is held: copies that are under way end soon.
  void ExpectNothingHeld();
  // A transfer that should not be harmed by what came before it.
  void ExpectServes();

  IdentityBackend backend_;
  ManualBackend manual_;
  std::unique_ptr<Scheduler> scheduler_;
  Metrics metrics_{{}, [] { return ServerStats(); }};
  CallLog calls_{metrics_, {}};
  AdmittedCalls admitted_calls_;
  UploadRoom uploads_{{64 * kMiB, 4 * kMiB, 16 * kMiB, 64}};
  absl::Duration stall_time_ = absl::Hours(1);
  std::function<int64_t()> excess_memory_;
  std::unique_ptr<TransferTable> transfers_;
  ServiceParts parts_;
  std::unique_ptr<Alarms> alarms_;
  pb::Admitted admitted_;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_EXCHANGE_TESTING_H_
