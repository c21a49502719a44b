// What goes wrong in an Exchange: what it ends with, and that nothing is held
// afterwards and the next one is served.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host_buffer.h"
#include "server/front/decode.h"
#include "tests/notification.h"
#include "tests/server/exchange_testing.h"
#include "tests/server/fakes/apart_backend.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

void ExpectField(const absl::Status& status, absl::string_view field) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const auto violations = wire::FieldViolations(status);
  ASSERT_EQ(violations.size(), 1) << status;
  EXPECT_EQ(violations[0].field, field) << status;
}

class ExchangeEndTest : public ExchangeTest {
 protected:
  // `bad` comes once a chunk is there; what the transfer ends with.
  absl::Status EndWith(const pb::ExchangeRequest& bad) {
    auto stream = Begin(tensors_);
    stream->Send(Chunk(tensors_, 1, 0));
    stream->Send(bad);
    absl::Status status = stream->AwaitEnd();
    stream->Close();
    ExpectNothingHeld();
    ExpectServes();
    return status;
  }
  // What a first message ends with that opens nothing.
  absl::Status RefusalOf(const pb::ExchangeRequest& first) {
    auto stream = Open();
    stream->Send(first);
    absl::Status status = stream->AwaitEnd();
    stream->Close();
    ExpectNothingHeld();
    return status;
  }

  const Tensors tensors_{1000};
};

TEST_F(ExchangeEndTest, AChunkOffTheGridIsRefused) {
  pb::ExchangeRequest chunk = Chunk(tensors_, 1, 1);
  chunk.mutable_chunk()->set_offset(kChunk + 1);
  ExpectField(EndWith(chunk), "chunk.offset");
  chunk.mutable_chunk()->set_offset(4 * kChunk);
  ExpectField(EndWith(chunk), "chunk.offset");
  chunk.mutable_chunk()->set_offset(-kChunk);
  ExpectField(EndWith(chunk), "chunk.offset");
}

TEST_F(ExchangeEndTest, AChunkOfAnotherLengthIsRefused) {
  pb::ExchangeRequest chunk = Chunk(tensors_, 1, 1);
  chunk.mutable_chunk()->mutable_data()->push_back('x');
  ExpectField(EndWith(chunk), "chunk.data");
  chunk.mutable_chunk()->mutable_data()->resize(kChunk - 1);
  ExpectField(EndWith(chunk), "chunk.data");
  chunk.mutable_chunk()->clear_data();
  ExpectField(EndWith(chunk), "chunk.data");
}

TEST_F(ExchangeEndTest, AChunkOfWhatIsNotStreamedIsRefused) {
  pb::ExchangeRequest chunk = Chunk(tensors_, 1, 1);
  for (int number : {0, 4, 5, 6, 8, -1, 1 << 30}) {
    chunk.mutable_chunk()->set_tensor(number);
    ExpectField(EndWith(chunk), "chunk.tensor");
  }
}

TEST_F(ExchangeEndTest, AChunkThatComesTwiceIsDropped) {
  auto stream = Begin(tensors_);
  pb::ExchangeRequest other = Chunk(tensors_, 1, 0);
  stream->Send(other);
  other.mutable_chunk()->mutable_data()->assign(kChunk, 'x');
  stream->Send(other);
  SendAll(*stream, tensors_);
  std::string o(tensors_.q.size(), '\xff');
  TakeResults(*stream, o);
  EXPECT_EQ(o, tensors_.q);
  // Also after all are here; before, nobody reads it.
  stream->Send(other);
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd(), absl::OkStatus());
}

TEST_F(ExchangeEndTest, MoreThanTwiceAsManyChunksAreRefused) {
  auto stream = Begin(tensors_);
  for (int i = 0; i < 6 * 4; ++i) stream->Send(Chunk(tensors_, 1, 0));
  stream->Send(Chunk(tensors_, 1, 0));
  ExpectField(stream->AwaitEnd(), "chunk");
  stream->Close();
  ExpectNothingHeld();
}

TEST_F(ExchangeEndTest, MessagesOutOfPlaceAreRefused) {
  EXPECT_THAT(EndWith(Header(tensors_)).ToString(),
              HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(EndWith(JoinTo(admitted_)).ToString(),
              HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(EndWith({}).ToString(), HasSubstr("INVALID_ARGUMENT"));
  ExpectField(EndWith(InputsSent(-1)), "inputs_sent.streams");
  ExpectField(EndWith(InputsSent(1)), "inputs_sent.streams");
  pb::ExchangeRequest missing;
  missing.mutable_missing();
  ExpectField(EndWith(missing), "missing");
  auto stream = Begin(tensors_, 2);
  stream->Send(InputsSent(1));
  stream->Send(InputsSent(1));
  ExpectField(stream->AwaitEnd(), "inputs_sent");
}

TEST_F(ExchangeEndTest, GarbledMessagesAreRefused) {
  auto stream = Begin(tensors_);
  stream->SendBytes("\x1a\xff");
  EXPECT_EQ(stream->AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  auto unknown = Begin(tensors_);
  unknown->SendBytes(std::string("\x32\0", 2));  // field 6
  EXPECT_EQ(unknown->AwaitEnd().code(), absl::StatusCode::kUnimplemented);
  auto first = Open();
  first->SendBytes("no message");
  EXPECT_EQ(first->AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  stream->Close();
  unknown->Close();
  first->Close();
  ExpectNothingHeld();
}

TEST_F(ExchangeEndTest, AFirstMessageThatIsNeitherHeaderNorJoinIsRefused) {
  for (const pb::ExchangeRequest& first :
       {Chunk(tensors_, 1, 0), InputsSent(), pb::ExchangeRequest()}) {
    EXPECT_EQ(RefusalOf(first).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(ExchangeEndTest, ABadHeaderIsRefusedByItsField) {
  pb::ExchangeRequest header = Header(tensors_);
  header.mutable_header()->set_streams(-1);
  ExpectField(RefusalOf(header), "header.streams");
  header = Header(tensors_);
  header.mutable_header()->set_chunk_bytes(-1);
  ExpectField(RefusalOf(header), "header.chunk_bytes");
  header = Header(tensors_);
  header.mutable_header()->clear_forward();
  ExpectField(RefusalOf(header), "header");
  header = Header(tensors_);
  header.mutable_header()->mutable_forward()->mutable_k()->set_shape(1, 7);
  EXPECT_EQ(RefusalOf(header).code(), absl::StatusCode::kInvalidArgument);
  header = Header(tensors_);
  header.mutable_header()->mutable_forward()->mutable_k()->clear_streamed();
  ExpectField(RefusalOf(header), "k.data");
  header = Header(tensors_);
  header.mutable_header()->mutable_forward()->mutable_k()->set_data("x");
  ExpectField(RefusalOf(header), "k.data");
}

TEST_F(ExchangeEndTest, AResultThatIsTooLargeForTheResponseMustBeStreamed) {
  const Tensors large(5000);  // O has 1.2 MiB
  pb::ExchangeRequest header = Header(large);
  header.mutable_header()->mutable_forward()->clear_o();
  ExpectField(RefusalOf(header), "o");
}

TEST_F(ExchangeEndTest, AHeaderThatSaysItIsTooLongIsRefusedUnread) {
  auto stream = Open({"client", "a"}, "2000000");
  ExpectField(stream->AwaitEnd(), "header");
  EXPECT_FALSE(stream->fake().TakeRead());
  auto garbled = Open({"client", "a"}, "ten");
  ExpectField(garbled->AwaitEnd(), "attnd-request-bytes");
}

TEST_F(ExchangeEndTest, AStreamWithoutAMessageIsInvalid) {
  auto stream = Open();
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ExchangeEndTest, AStreamThatSaysNothingEndsAfterItsTime) {
  StallAfter(absl::Milliseconds(100));
  auto stream = Open();
  EXPECT_EQ(stream->AwaitEnd().code(), absl::StatusCode::kDeadlineExceeded);
  stream->Close();
  ExpectNothingHeld();
}

TEST_F(ExchangeEndTest, OnlyTheSameClientJoinsATransferThatIsThere) {
  auto main = Begin(tensors_, 2);
  for (const std::string& token :
       {std::string(), std::string(16, '\0'), std::string(1000, 'x')}) {
    pb::ExchangeRequest join;
    join.mutable_join()->set_transfer(token);
    auto stream = Open();
    stream->Send(join);
    EXPECT_EQ(stream->AwaitEnd().code(), absl::StatusCode::kNotFound);
  }
  auto stranger = Open({"other", "a"});
  stranger->Send(JoinTo(admitted_));
  const absl::Status refusal = stranger->AwaitEnd();
  EXPECT_EQ(refusal.code(), absl::StatusCode::kNotFound);
  // Another connection of the same client may.
  auto joined = Join();
  joined->Send(Chunk(tensors_, 1, 0));
  auto too_many = Join();
  EXPECT_EQ(too_many->AwaitEnd().code(), absl::StatusCode::kResourceExhausted);
  SendAll(*main, tensors_);
  std::string o(tensors_.q.size(), '\xff');
  while (!joined->fake().has_ended()) {
    if (joined->fake().is_writing()) Put(joined->Take().chunk(), o);
    if (main->fake().is_writing()) {
      const pb::ExchangeResponse response = main->Take();
      if (response.has_chunk()) Put(response.chunk(), o);
    }
  }
  main->HalfClose();
  while (!main->fake().has_ended()) {
    if (main->fake().is_writing()) {
      const pb::ExchangeResponse response = main->Take();
      if (response.has_chunk()) Put(response.chunk(), o);
    }
    main->HalfClose();
  }
  EXPECT_EQ(o, tensors_.q);
  main->Close();
  // After the end the answer is the same as for another client.
  auto late = Join();
  EXPECT_EQ(late->AwaitEnd(), refusal);
}

TEST_F(ExchangeEndTest, WhatNobodyWillBringIsNotWaitedFor) {
  auto stream = Begin(tensors_);
  stream->Send(Chunk(tensors_, 1, 0));
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  stream->Close();
  ExpectNothingHeld();
}

TEST_F(ExchangeEndTest, WhatIsAskedForWrongIsRefused) {
  const auto ask = [&](int tensor, int64_t offset, int64_t bytes, int times,
                       absl::string_view field) {
    auto stream = Begin(tensors_);
    SendAll(*stream, tensors_);
    std::string o(tensors_.q.size(), '\xff');
    TakeResults(*stream, o);
    pb::ExchangeRequest missing;
    auto& range = *missing.mutable_missing()->add_ranges();
    range.set_tensor(tensor);
    range.set_offset(offset);
    range.set_bytes(bytes);
    for (int i = 0; i < times; ++i) {
      stream->Send(missing);
      while (stream->fake().is_writing()) stream->Take();
    }
    ExpectField(stream->AwaitEnd(), field);
    stream->Close();
    ExpectNothingHeld();
  };
  ask(1, 1, kChunk, 1, "missing.ranges.offset");
  ask(1, 0, kChunk + 1, 1, "missing.ranges.bytes");
  ask(1, 0, 0, 1, "missing.ranges.bytes");
  ask(2, 0, kChunk, 1, "missing.ranges.offset");  // LSE is not streamed
  ask(3, 0, kChunk, 1, "missing.ranges.tensor");
  ask(1, 0, kChunk, 5, "missing.ranges");
  ExpectServes();
}

// Every state that a transfer may be in when something happens to it.
enum class At { kReceiving, kWorking, kSending, kSent };
constexpr At kEverywhere[] = {At::kReceiving, At::kWorking, At::kSending,
                              At::kSent};

class ExchangeStateTest : public ExchangeEndTest {
 protected:
  struct Open {
    std::unique_ptr<TestStream> main, joined;
  };

  ExchangeStateTest() { UseScheduler(OneLane(), {&manual_}); }

  // A transfer over two streams that has got so far.
  Open Reach(At at) {
    Open open;
    open.main = Begin(tensors_, 2);
    open.joined = Join();
    open.main->Send(Chunk(tensors_, 1, 0));
    open.joined->Send(Chunk(tensors_, 1, 1));
    if (at == At::kReceiving) return open;
    SendAll(*open.main, tensors_);
    const ManualBackend::Call kernel = manual_.Await();
    if (at == At::kWorking) return open;
    manual_.Finish(kernel);
    open.main->fake().AwaitWritten();
    open.joined->fake().AwaitWritten();
    if (at == At::kSending) return open;
    open.main->Taken();
    open.joined->Taken();
    bool answered = false;
    while (!answered) {
      if (open.joined->fake().is_writing()) open.joined->Take();
      if (open.main->fake().is_writing()) {
        answered = open.main->Take().has_forward();
      }
    }
    return open;
  }
  // What was lost is over.
  void ExpectOver(Open& open) {
    manual_.FinishAll();
    open.main->Close();
    open.joined->Close();
    ExpectNothingHeld();
    EXPECT_TRUE(admitted_calls_.WaitForNone(MonotonicNow()));
    ExpectServes();
  }
};

class ExchangeEverywhereTest : public ExchangeStateTest,
                               public ::testing::WithParamInterface<At> {};
std::string NameOf(const ::testing::TestParamInfo<At>& info) {
  constexpr const char* kNames[] = {"Receiving", "Working", "Sending", "Sent"};
  return kNames[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(States, ExchangeEverywhereTest,
                         ::testing::ValuesIn(kEverywhere), NameOf);

TEST_P(ExchangeEverywhereTest, WithoutTheFirstStreamAllOfItEnds) {
  Open open = Reach(GetParam());
  open.main->Break();
  EXPECT_EQ(open.main->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  if (GetParam() != At::kSent) {
    open.joined->Taken();
    EXPECT_EQ(open.joined->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  }
  ExpectOver(open);
}

TEST_P(ExchangeEverywhereTest, ADrainThatIsOverEndsIt) {
  Open open = Reach(GetParam());
  transfers_->EndAll(absl::UnavailableError("the server is shutting down"));
  open.main->Taken();
  open.joined->Taken();
  EXPECT_EQ(open.main->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  if (GetParam() != At::kSent) {
    EXPECT_EQ(open.joined->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  }
  ExpectOver(open);
}

// What is being written when it ends keeps nothing for long.
TEST_P(ExchangeEverywhereTest, AStreamThatTakesNothingIsCut) {
  Open open = Reach(GetParam());
  transfers_->EndAll(absl::UnavailableError("the server is shutting down"));
  if (GetParam() == At::kSending) {
    EXPECT_FALSE(open.main->fake().has_ended());
    open.main->fake().AwaitCut();
    open.main->Taken(false);
    open.joined->Taken(false);
  }
  EXPECT_EQ(open.main->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  ExpectOver(open);
}

class ExchangeStallTest : public ExchangeStateTest,
                          public ::testing::WithParamInterface<At> {};
INSTANTIATE_TEST_SUITE_P(States, ExchangeStallTest,
                         ::testing::Values(At::kReceiving, At::kSending,
                                           At::kSent),
                         NameOf);

TEST_P(ExchangeStallTest, EndsAfterTheStallTime) {
  // Long enough to get so far on a machine that is busy.
  StallAfter(absl::Seconds(2));
  Open open = Reach(GetParam());
  if (GetParam() == At::kSending) {
    open.main->fake().AwaitCut();
    open.main->Taken(false);
    open.joined->Taken(false);
  }
  EXPECT_EQ(open.main->AwaitEnd().code(), absl::StatusCode::kDeadlineExceeded);
  open.main->Close();
  open.joined->Close();
  ExpectNothingHeld();
}

TEST_F(ExchangeStateTest, WhileItIsComputedNothingStalls) {
  StallAfter(absl::Seconds(1));
  Open open = Reach(At::kWorking);
  Notification later;
  alarms_->Set(MonotonicNow() + absl::Milliseconds(1500),
               [&] { later.Notify(); });
  later.WaitForNotification();
  EXPECT_FALSE(open.main->fake().has_ended());
}

// A device whose buffers may break.
class BreakableBackend : public ApartBackend {
 public:
  class Buffer final : public DeviceBuffer {
   public:
    Buffer(std::shared_ptr<DeviceBuffer> buffer,
           const std::atomic<bool>& broken)
        : buffer_(std::move(buffer)), broken_(broken) {}
    std::byte* data() const override { return buffer_->data(); }
    absl::Status Write(int64_t offset,
                       absl::Span<const ConstHostSpan> from) override {
      if (broken_) return absl::InternalError("the device is gone");
      return buffer_->Write(offset, from);
    }

   private:
    const std::shared_ptr<DeviceBuffer> buffer_;
    const std::atomic<bool>& broken_;
  };

  absl::StatusOr<std::shared_ptr<DeviceBuffer>> NewBuffer(
      int64_t bytes) override {
    return std::make_shared<Buffer>(*IdentityBackend::NewBuffer(bytes), broken);
  }

  std::atomic<bool> broken = false;
};

TEST_F(ExchangeEndTest, ADeviceThatBreaksWhileChunksArriveEndsIt) {
  BreakableBackend backend;
  UseScheduler({}, {&backend});
  auto stream = Begin(tensors_);
  stream->Send(Chunk(tensors_, 1, 0));
  backend.broken = true;
  stream->Send(Chunk(tensors_, 1, 1));
  EXPECT_EQ(stream->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  stream->Close();
  ExpectNothingHeld();
  backend.broken = false;
  ExpectServes();
}

TEST_F(ExchangeEndTest, WhatFindsNoMemoryIsRefusedBeforeAnyChunk) {
  SchedulerOptions options;
  options.memory_bytes = 2 * kMiB;
  UseScheduler(options, {&backend_});
  StallAfter(absl::Milliseconds(100));
  // More than there will ever be.
  const absl::Status never = RefusalOf(Header(Tensors(10'000)));
  EXPECT_EQ(never.code(), absl::StatusCode::kInvalidArgument);
  // More than there is now, as another holds it.
  const Tensors large(1500);
  const auto other = DecodeExchangeHeader(
      std::make_shared<pb::ExchangeRequest>(Header(large)), nullptr);
  ASSERT_TRUE(other.ok());
  other->work->client = "first";
  const auto held = scheduler_->Admit(*other->work);
  ASSERT_TRUE(held.ok());
  auto second = Open({"other", "b"});
  second->Send(Header(large));
  const absl::Status now = second->AwaitEnd();
  EXPECT_EQ(now.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(wire::RetryDelay(now).has_value());
  EXPECT_FALSE(second->fake().TakeRead());
}

TEST_F(ExchangeEndTest, WhereMessagesHaveNoRoomAHeaderWaitsAndIsRefused) {
  std::vector<std::unique_ptr<UploadRoom::Upload>> others;
  for (int i = 0; i < 4; ++i) {
    auto upload = uploads_.Enter({std::to_string(i), "x"},
                                 i < 3 ? 16 * kMiB : 15 * kMiB, nullptr);
    ASSERT_TRUE(upload.ok() && (*upload)->granted());
    others.push_back(*std::move(upload));
  }
  auto served = Open({"client", "a"}, "1000");
  served->Send(Header(tensors_));
  others.pop_back();
  EXPECT_TRUE(served->Take().has_admitted());
  served.reset();
  // The thread that opened it may still hold what it opened it with.
  while (uploads_.stats().reserved_bytes > 48 * kMiB) std::this_thread::yield();
  StallAfter(absl::Milliseconds(100));
  auto last = uploads_.Enter({"3", "x"}, 15 * kMiB, nullptr);
  ASSERT_TRUE(last.ok() && (*last)->granted());
  auto stream = Open({"client", "a"}, "1000");
  stream->Send(Header(tensors_));
  const absl::Status status = stream->AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(wire::RetryDelay(status).has_value());
  EXPECT_EQ(scheduler_->stats().account_bytes, 0);
}

TEST_F(ExchangeEndTest, WhatFillsTheMemoryIsLookedForAmongThoseThatWait) {
  std::atomic<int64_t> excess = 0;
  excess_memory_ = [&] { return excess.load(); };
  UseScheduler({}, {&backend_});
  auto stream = Begin(tensors_);
  stream->Send(Chunk(tensors_, 1, 0));
  excess = TransferTable::kExcess + 1;
  const absl::Status status = stream->AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  excess = 0;
  stream->Close();
  ExpectNothingHeld();
}

TEST_F(ExchangeEndTest, ADrainLetsWhatWasAdmittedFinish) {
  auto stream = Begin(tensors_);
  std::thread drain([&] { scheduler_->Drain(absl::InfiniteFuture()); });
  while (true) {
    // Until it drains, such a transfer is opened, and lost again.
    auto other = Open({"other", "b"});
    other->Send(Header(tensors_));
    while (!other->fake().has_ended() && !other->fake().is_writing()) {
      std::this_thread::yield();
    }
    if (!other->fake().has_ended()) continue;
    EXPECT_EQ(other->AwaitEnd().code(), absl::StatusCode::kUnavailable);
    break;
  }
  SendAll(*stream, tensors_);
  std::string o(tensors_.q.size(), '\xff');
  TakeResults(*stream, o);
  EXPECT_EQ(o, tensors_.q);
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd(), absl::OkStatus());
  drain.join();
}

TEST_F(ExchangeEndTest, CancelledBeforeItIsAMemberItEndsSo) {
  SchedulerOptions options = OneLane();
  options.memory_bytes = 2 * kMiB;
  UseScheduler(options, {&backend_});
  auto silent = Open();
  silent->Break();
  EXPECT_EQ(silent->AwaitEnd().code(), absl::StatusCode::kCancelled);
  const Tensors large(1500);
  auto first = Begin(large);
  auto held = Open({"other", "b"});
  held->Send(Header(large));
  held->Break();
  EXPECT_EQ(held->AwaitEnd().code(), absl::StatusCode::kCancelled);
  first->Break();
  first->Close();
  held->Close();
  silent->Close();
  ExpectNothingHeld();
}

}  // namespace
}  // namespace attnd::server
