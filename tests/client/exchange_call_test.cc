// Calls that travel as an Exchange, or might: which way they go, and what is
// tried again.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/v1/attention.pb.h"
#include "client/prepare.h"
#include "tests/client/core_testing.h"
#include "tests/client/transfer_testing.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;
using ::testing::HasSubstr;

class ExchangeCallTest : public CoreTest {
 protected:
  void StartCall(TransportKind transport,
                 absl::Duration timeout = absl::Hours(1)) {
    result_.reset();
    CallOptions options;
    options.transport = transport;
    options.timeout = timeout;
    cancel_ = client_->ForwardAsync(
        forward_.call, options,
        [this](absl::StatusOr<Report> report) { result_ = std::move(report); });
  }
  // A call of more than 8 MiB: its K and V are all bias, so to say.
  ForwardCall LargeCall() {
    ForwardCall call = forward_.call;
    call.bias = {DType::kF32, {1, 1, 3000, 800}, bias_.data()};
    return call;
  }

  FakeStream& stream(size_t index) { return transport_->streams.at(index); }
  size_t streams() const { return transport_->streams.size(); }
  void EndStream(size_t index, absl::Status status) {
    stream(index).End(std::move(status));
    executor_->RunReady();
  }
  // The server lets the call pass, from its header on.
  void Serve(size_t index) {
    stream(index).TakeWrite();
    stream(index).Send(Admitted(1));
    while (stream(index).writing) stream(index).TakeWrite();
    for (int i = 0; i < 3; ++i) {
      stream(index).Send(ChunkOf(1, forward_.o, i));
    }
    stream(index).Send(forward_.Response());
    EXPECT_TRUE(stream(index).closed);
    EndStream(index, absl::OkStatus());
  }
  std::string UnaryResponse() const {
    v1::ExchangeResponse message;
    EXPECT_TRUE(message.ParseFromString(forward_.Response()));
    message.mutable_forward()->mutable_o()->set_data(forward_.o);
    return message.forward().SerializeAsString();
  }
  void ExpectAnswered() {
    ASSERT_TRUE(result_.has_value());
    ASSERT_TRUE(result_->ok()) << result_->status();
    EXPECT_EQ(forward_.got_o, forward_.o);
    EXPECT_EQ(forward_.got_lse, forward_.lse);
  }

  ChunkedForward forward_;
  std::string bias_ = std::string(3000 * 800 * 4, 'b');
  std::optional<absl::StatusOr<Report>> result_;
  std::function<void()> cancel_;
};

TEST_F(ExchangeCallTest, ReportsHowItWent) {
  StartCall(TransportKind::kStream);
  ASSERT_EQ(streams(), 1);
  Serve(0);
  ExpectAnswered();
  EXPECT_EQ((*result_)->transport, TransportKind::kStream);
  EXPECT_EQ((*result_)->streams, 1);
  EXPECT_EQ((*result_)->attempts, 1);
  EXPECT_EQ((*result_)->receive, absl::Nanoseconds(5));
  EXPECT_EQ(transport_->size(), 0);
}

TEST_F(ExchangeCallTest, SmallCallsAreUnaryUnlessAskedOtherwise) {
  StartCall(TransportKind::kAuto);
  ASSERT_EQ(transport_->size(), 1);
  EXPECT_EQ(streams(), 0);
  transport_->Answer(0, UnaryResponse());
  executor_->RunReady();
  ExpectAnswered();
  EXPECT_EQ((*result_)->transport, TransportKind::kUnary);
  EXPECT_EQ((*result_)->streams, 1);
}

TEST_F(ExchangeCallTest, LargeCallsAreStreamedUnlessAskedOtherwise) {
  forward_.call = LargeCall();
  StartCall(TransportKind::kAuto);
  EXPECT_EQ(streams(), 1);
  EXPECT_EQ(transport_->size(), 0);
  EndStream(0, absl::InternalError(""));
  StartCall(TransportKind::kUnary);
  EXPECT_EQ(streams(), 1);
  EXPECT_EQ(transport_->size(), 1);
  transport_->Answer(0, Transport::Result(absl::InternalError("")));
  executor_->RunReady();
}

TEST_F(ExchangeCallTest, CallsThatExceedAMessageAreStreamed) {
  for (const int64_t limit : {forward_.q.size(), forward_.o.size()}) {
    ClientOptions options;
    options.max_message_bytes = limit;
    Reset(options);
    StartCall(TransportKind::kAuto);
    ASSERT_EQ(streams(), 1);
    // A chunk and what is around it pass.
    v1::ExchangeRequest message;
    ASSERT_TRUE(message.ParseFromString(stream(0).written[0]));
    EXPECT_GE(message.header().chunk_bytes(), wire::kMinChunkBytes);
    EXPECT_LE(message.header().chunk_bytes(), limit);
    Serve(0);
    ExpectAnswered();
    StartCall(TransportKind::kUnary);
    executor_->RunReady();
    EXPECT_TRUE(absl::IsInvalidArgument(result_->status()));
  }
}

TEST_F(ExchangeCallTest, InvalidCallsAreRefusedBeforeAnythingIsSent) {
  CallOptions stream;
  stream.transport = TransportKind::kStream;
  ForwardCall call = Call();
  call.k.data = nullptr;
  ExpectRefused(call, "k.data", stream);
  call = Call();
  call.o.shape = {2, 3, 4, 5};
  ExpectRefused(call, "o.shape", stream);
  call = Call();
  call.attention.q_lens.assign(400'000, 1'000'000);
  ExpectRefused(call, "header", stream);
  call = Call();
  call.q.shape = call.k.shape = {int64_t{1} << 60};
  call.o = call.lse = {};
  ExpectRefused(call, "v", stream);  // 4 EiB and more
  stream.transport = static_cast<TransportKind>(4);
  ExpectRefused(Call(), "options.transport", stream);
  EXPECT_EQ(streams(), 0);
}

TEST_F(ExchangeCallTest, WhatIsUnavailableIsTriedAgainAsAWhole) {
  StartCall(TransportKind::kStream);
  stream(0).TakeWrite();
  stream(0).Send(Admitted(1));
  stream(0).TakeWrite();
  EndStream(0, absl::UnavailableError("gone"));
  EXPECT_EQ(streams(), 1) << "no backoff";
  executor_->Advance(absl::Seconds(1));
  ASSERT_EQ(streams(), 2);
  EXPECT_EQ(stream(1).written, std::vector{stream(0).written[0]});
  Serve(1);
  ExpectAnswered();
  EXPECT_EQ((*result_)->attempts, 2);
}

TEST_F(ExchangeCallTest, ARefusalWithADelayIsTriedAgainAfterIt) {
  StartCall(TransportKind::kStream);
  stream(0).TakeWrite();
  EndStream(0, wire::WithRetryInfo(absl::ResourceExhaustedError("full"),
                                   absl::Seconds(3)));
  executor_->Advance(absl::Seconds(2.9));
  EXPECT_EQ(streams(), 1);
  executor_->Advance(absl::Seconds(1));
  ASSERT_EQ(streams(), 2);
  Serve(1);
  ExpectAnswered();
}

TEST_F(ExchangeCallTest, NothingElseIsTriedAgain) {
  for (const absl::Status& status :
       {absl::ResourceExhaustedError("too large"),
        absl::DeadlineExceededError(""), absl::InvalidArgumentError("")}) {
    StartCall(TransportKind::kStream);
    EndStream(streams() - 1, status);
    ASSERT_TRUE(result_.has_value());
    EXPECT_EQ(result_->status(), status);
  }
  EXPECT_EQ(streams(), 3);
}

TEST_F(ExchangeCallTest, NeverBeginsAfterItsDeadline) {
  StartCall(TransportKind::kStream, absl::ZeroDuration());
  executor_->RunReady();
  EXPECT_EQ(streams(), 0);
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(result_->status()));
}

TEST_F(ExchangeCallTest, CancellingReachesTheTransfer) {
  StartCall(TransportKind::kStream);
  cancel_();
  EXPECT_TRUE(stream(0).cancelled);
  EXPECT_FALSE(result_.has_value());
  EndStream(0, absl::CancelledError(""));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsCancelled(result_->status()));
}

TEST_F(ExchangeCallTest, AServerWithoutExchangeGetsAUnaryCall) {
  forward_.call = LargeCall();
  ClientOptions options;
  options.max_attempts = 1;  // it is none of them
  Reset(options);
  StartCall(TransportKind::kAuto);
  EndStream(0, absl::UnimplementedError(""));
  ASSERT_EQ(transport_->size(), 1);
  EXPECT_EQ(transport_->at(0).method, "/attn.v1.AttentionService/Forward");
  transport_->Answer(0, UnaryResponse());
  executor_->RunReady();
  ExpectAnswered();
  EXPECT_EQ((*result_)->transport, TransportKind::kUnary);
  EXPECT_EQ((*result_)->attempts, 1);

  // The next call knows; for a minute.
  StartCall(TransportKind::kAuto);
  EXPECT_EQ(streams(), 1);
  ASSERT_EQ(transport_->size(), 2);
  transport_->Answer(1, UnaryResponse());
  executor_->RunReady();
  executor_->Advance(absl::Seconds(61));
  StartCall(TransportKind::kAuto);
  EXPECT_EQ(streams(), 2);
  EndStream(1, absl::InternalError(""));
}

TEST_F(ExchangeCallTest, WhatIsUnimplementedEitherWaySaysNothingOfExchange) {
  forward_.call = LargeCall();
  StartCall(TransportKind::kAuto);
  EndStream(0, absl::UnimplementedError("unknown field 9"));
  transport_->Answer(
      0, Transport::Result(absl::UnimplementedError("unknown field 9")));
  executor_->RunReady();
  EXPECT_EQ(result_->status(), absl::UnimplementedError("unknown field 9"));
  StartCall(TransportKind::kAuto);
  EXPECT_EQ(streams(), 2) << "tries again";
  EndStream(1, absl::InternalError(""));
}

TEST_F(ExchangeCallTest, WithoutExchangeSomeCallsAreTooLarge) {
  ClientOptions options;
  options.max_message_bytes = forward_.o.size();
  Reset(options);
  StartCall(TransportKind::kAuto);
  EndStream(0, absl::UnimplementedError(""));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsUnimplemented(result_->status())) << result_->status();
  EXPECT_THAT(std::string(result_->status().message()),
              HasSubstr("max_message_bytes"));
}

TEST_F(ExchangeCallTest, WhatMustBeStreamedDoesNotFallBack) {
  StartCall(TransportKind::kStream);
  EndStream(0, absl::UnimplementedError("no such method"));
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->status(), absl::UnimplementedError("no such method"));
  EXPECT_EQ(transport_->size(), 0);
}

TEST_F(ExchangeCallTest, CancelledWhileItFallsBackItSendsNothing) {
  forward_.call = LargeCall();
  StartCall(TransportKind::kAuto);
  stream(0).End(absl::UnimplementedError(""));
  cancel_();
  executor_->RunReady();
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsCancelled(result_->status()));
  EXPECT_EQ(transport_->size(), 0);
}

TEST_F(ExchangeCallTest, AStreamIsWorthEightMegabytesAndAConnectionTwoStreams) {
  // Nobody looks at the memory: it is only spoken of.
  ForwardCall call = forward_.call;
  call.k = call.v = {DType::kF32, {1, 1, 1, 1}, bias_.data()};
  call.lse = {};
  const auto streams_for = [&](int64_t bytes, int connections) {
    call.q = {DType::kF32, {1, bytes / 8, 1, 1}, bias_.data()};
    call.o = {DType::kF32, {1, bytes / 8, 1, 1}, bias_.data()};
    Report report;
    CallSpec spec;
    Route route;
    route.max_message_bytes = int64_t{1} << 30;
    route.connections = connections;
    const absl::Status status = PrepareForward(call, {}, route, report, spec);
    EXPECT_TRUE(status.ok()) << status;
    return spec.exchange == nullptr ? 0 : spec.exchange->parts.streams;
  };
  EXPECT_EQ(streams_for((8 << 20) - 16, 8), 0);
  EXPECT_EQ(streams_for(8 << 20, 8), 1);
  EXPECT_EQ(streams_for(63 << 20, 8), 7);
  EXPECT_EQ(streams_for(64 << 20, 8), 8);
  EXPECT_EQ(streams_for(64 << 20, 2), 4);
  EXPECT_EQ(streams_for(64 << 20, 1), 2);
  EXPECT_EQ(streams_for(int64_t{6} << 30, 256), 8);
}

TEST(ExchangeEncodeTest, TensorsOfThreeGibibytes) {
  std::string memory(1, 'x');  // nobody looks at more of it
  const std::vector<int64_t> shape = {1, (3 << 20), 8, 32};
  ForwardCall call;
  call.q = call.k = call.v = {DType::kF32, shape, memory.data()};
  call.o = {DType::kF32, shape, memory.data()};
  const auto parts = EncodeForwardExchange(call, {}, {1, 0});
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->inputs.size(), 3);
  for (const StreamedInput& input : parts->inputs) {
    EXPECT_EQ(input.bytes.size(), int64_t{3} << 30);
  }
  ASSERT_EQ(parts->outputs.size(), 1);
  EXPECT_TRUE(parts->outputs[0].streamed);
  EXPECT_EQ(parts->outputs[0].bytes, int64_t{3} << 30);
  EXPECT_LT(parts->header[0].owned.size(), 200);

  ChunkPlan plan(parts->inputs, 4 << 20);
  int64_t bytes = 0;
  InputChunk last;
  while (const auto chunk = plan.Next()) {
    bytes += chunk->bytes.size();
    last = *chunk;
  }
  EXPECT_EQ(bytes, int64_t{9} << 30);
  EXPECT_EQ(last.tensor, v1::ForwardRequest::kVFieldNumber);
  EXPECT_EQ(last.offset, (int64_t{3} << 30) - (4 << 20));
}

TEST(ExchangeEncodeTest, SmallTensorsTravelInline) {
  // Eight tensors of 60 KiB fit; then the header is full.
  std::string memory(60 << 10, 'x');
  const std::vector<int64_t> shape = {1, 60 << 8, 1, 1};
  const ConstTensor tensor = {DType::kF32, shape, memory.data()};
  BackwardCall call;
  call.q = call.k = call.v = call.bias = call.d_o = tensor;
  call.lse = call.o = call.delta = call.d_lse = tensor;
  call.dq = {DType::kF32, shape, memory.data()};
  call.dk = {DType::kF32, shape, memory.data()};
  const auto parts = EncodeBackwardExchange(call, {}, {3, 1 << 20});
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->inputs.size(), 1);
  EXPECT_EQ(parts->inputs[0].field, v1::BackwardRequest::kDLseFieldNumber);
  v1::ExchangeRequest message;
  ASSERT_TRUE(message.ParseFromString(parts->header[0].owned));
  EXPECT_EQ(message.header().streams(), 3);
  EXPECT_EQ(message.header().chunk_bytes(), 1 << 20);
  const v1::BackwardRequest& request = message.header().backward();
  EXPECT_EQ(request.delta().data(), memory);
  EXPECT_TRUE(request.d_lse().has_streamed());
  EXPECT_FALSE(request.dq().has_streamed());
  EXPECT_FALSE(request.dv().want());
}

TEST(ExchangeEncodeTest, EmptyTensorsHaveNoChunks) {
  ForwardCall call;
  call.q = call.k = call.v = {DType::kF32, {1, 0, 2, 4}, nullptr};
  call.o = {DType::kF32, {1, 0, 2, 4}, nullptr};
  const auto parts = EncodeForwardExchange(call, {}, {1, 0});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_TRUE(parts->inputs.empty());
  EXPECT_FALSE(parts->outputs[0].streamed);
  v1::ExchangeRequest message;
  ASSERT_TRUE(message.ParseFromString(parts->header[0].owned));
  EXPECT_TRUE(message.header().forward().q().has_data());
}

}  // namespace
}  // namespace attnd::client
