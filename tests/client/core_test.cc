// Calls from start to end, over a transport and an executor that the test steps
// by hand.

#include "client/core.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attn/v1/attention.pb.h"
#include "tests/client/core_testing.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;

TEST_F(CoreTest, BackwardSendsAndReceivesEveryTensor) {
  // All of one shape, so that a mixed-up field shows by its bytes alone.
  const std::vector<int64_t> shape = {1, 2, 2, 3};
  std::string in[9], out[3];
  for (std::string& bytes : in) bytes = RandomBytes(1 * 2 * 2 * 3 * 4);
  for (std::string& bytes : out) bytes.assign(1 * 2 * 2 * 3 * 4, '\xff');
  const auto tensor = [&](int i) {
    return ConstTensor{DType::kF32, shape, in[i].data()};
  };
  BackwardCall call;
  call.q = tensor(0);
  call.k = tensor(1);
  call.v = tensor(2);
  call.bias = tensor(3);
  call.d_o = tensor(4);
  call.lse = tensor(5);
  call.o = tensor(6);
  call.delta = tensor(7);
  call.d_lse = tensor(8);
  call.deterministic = true;
  call.plan = Plan::kHeads;
  call.dq = {DType::kF32, shape, out[0].data()};
  call.dk = {DType::kF32, shape, out[1].data()};
  call.dv = {DType::kF32, shape, out[2].data()};
  v1::BackwardRequest request;
  v1::BackwardResponse response;
  Fill(DType::kF32, shape, *response.mutable_dq());
  Fill(DType::kF32, shape, *response.mutable_dk());
  Fill(DType::kF32, shape, *response.mutable_dv());
  transport_->answer =
      [&](const FakeTransport::Attempt& attempt) -> Transport::Result {
    EXPECT_EQ(attempt.method, "/attn.v1.AttentionService/Backward");
    EXPECT_TRUE(request.ParseFromString(attempt.Bytes()));
    return std::make_unique<FakeResponse>(response.SerializeAsString());
  };
  const auto report = client_->Backward(call, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(request.q().data(), in[0]);
  EXPECT_EQ(request.k().data(), in[1]);
  EXPECT_EQ(request.v().data(), in[2]);
  EXPECT_EQ(request.bias().data(), in[3]);
  EXPECT_EQ(request.d_o().data(), in[4]);
  EXPECT_EQ(request.lse().data(), in[5]);
  EXPECT_EQ(request.o().data(), in[6]);
  EXPECT_EQ(request.delta().data(), in[7]);
  EXPECT_EQ(request.d_lse().data(), in[8]);
  EXPECT_TRUE(request.options().deterministic());
  EXPECT_EQ(request.options().plan(), v1::PLAN_HEADS);
  EXPECT_EQ(out[0], response.dq().data());
  EXPECT_EQ(out[1], response.dk().data());
  EXPECT_EQ(out[2], response.dv().data());
}

TEST_F(CoreTest, AsyncCallsEndOnTheExecutorWithTheirReport) {
  const v1::ForwardResponse response = GoodResponse();
  std::optional<absl::StatusOr<Report>> result;
  client_->ForwardAsync(Call(), {absl::Seconds(30)},
                        [&](absl::StatusOr<Report> r) { result = r; });
  ASSERT_EQ(transport_->size(), 1);
  EXPECT_EQ(transport_->at(0).headers.deadline,
            executor_->Now() + absl::Seconds(30));
  executor_->Advance(absl::Seconds(2));
  transport_->Answer(0, response.SerializeAsString());
  EXPECT_FALSE(result.has_value());
  executor_->RunReady();
  ASSERT_TRUE(result.has_value());
  ASSERT_TRUE(result->ok()) << result->status();
  EXPECT_EQ(o_, response.o().data());
  EXPECT_EQ((*result)->total, absl::Seconds(2));
}

TEST_F(CoreTest, EveryAttemptAndStreamSaysTheCallersIds) {
  CallOptions options;
  options.request_id = "a.B:9_-";
  options.traceparent =
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const auto expect_said = [&options](const CallHeaders& headers) {
    EXPECT_EQ(headers.request_id, options.request_id);
    EXPECT_EQ(headers.traceparent, options.traceparent);
  };
  options.transport = TransportKind::kUnary;
  std::optional<absl::StatusOr<Report>> result;
  client_->ForwardAsync(Call(), options,
                        [&](absl::StatusOr<Report> r) { result = r; });
  transport_->Answer(0, absl::UnavailableError("away"));
  executor_->Advance(absl::Minutes(1));
  ASSERT_EQ(transport_->size(), 2);
  transport_->Answer(1, GoodResponse().SerializeAsString());
  executor_->RunReady();
  ASSERT_TRUE(result.has_value() && result->ok());
  expect_said(transport_->at(0).headers);
  expect_said(transport_->at(1).headers);

  options.transport = TransportKind::kStream;
  client_->ForwardAsync(Call(), options, [](const absl::StatusOr<Report>&) {});
  expect_said(transport_->streams.at(0).headers);
  transport_->streams.at(0).TakeWrite();
  transport_->streams.at(0).End(absl::InvalidArgumentError("bad"));
  executor_->RunReady();

  transport_->answer = [](const FakeTransport::Attempt&) {
    return Transport::Result(absl::InternalError("no"));
  };
  (void)client_->CheckHealth("", options);
  expect_said(transport_->at(2).headers);
}

TEST_F(CoreTest, IdsThatNoServerTakesAreRefused) {
  for (const std::string& bad :
       {std::string("a b"), std::string("a\n"), std::string(129, 'a')}) {
    CallOptions options;
    options.request_id = bad;
    ExpectRefused(Call(), "request_id", options);
    EXPECT_TRUE(
        absl::IsInvalidArgument(client_->Forward(Call(), options).status()));
    EXPECT_TRUE(
        absl::IsInvalidArgument(client_->GetServerInfo(options).status()));
  }
  CallOptions options;
  options.traceparent =
      "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
  ExpectRefused(Call(), "traceparent", options);
  EXPECT_EQ(transport_->size(), 0);
}

TEST_F(CoreTest, AsyncRefusalsAlsoComeOnTheExecutor) {
  ForwardCall call = Call();
  call.q.data = nullptr;
  std::optional<absl::StatusOr<Report>> result;
  const auto cancel = client_->ForwardAsync(
      call, {}, [&](absl::StatusOr<Report> r) { result = r; });
  EXPECT_FALSE(result.has_value());
  executor_->RunReady();
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(absl::IsInvalidArgument(result->status()));
  cancel();
}

TEST_F(CoreTest, AsyncCallsAreCancelled) {
  std::optional<absl::StatusOr<Report>> result;
  const auto cancel = client_->ForwardAsync(
      Call(), {}, [&](absl::StatusOr<Report> r) { result = r; });
  cancel();
  EXPECT_TRUE(transport_->at(0).cancelled);
  transport_->Answer(0, absl::CancelledError(""));
  executor_->RunReady();
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(absl::IsCancelled(result->status()));
  cancel();
}

TEST_F(CoreTest, ACallbackMayCallAgainSynchronously) {
  const v1::ForwardResponse response = GoodResponse();
  int done = 0;
  client_->ForwardAsync(Call(), {}, [&](absl::StatusOr<Report>) {
    transport_->answer =
        [&](const FakeTransport::Attempt&) -> Transport::Result {
      return std::make_unique<FakeResponse>(response.SerializeAsString());
    };
    EXPECT_TRUE(client_->Forward(Call(), {}).ok());
    ++done;
  });
  transport_->Answer(0, response.SerializeAsString());
  executor_->RunReady();
  EXPECT_EQ(done, 1);
}

TEST_F(CoreTest, WhatACallbackHoldsIsGoneOnceItsCallIsDone) {
  auto held = std::make_shared<int>(1);
  std::weak_ptr<int> alive = held;
  const auto cancel = client_->ForwardAsync(
      Call(), {}, [held = std::move(held)](absl::StatusOr<Report>) {});
  transport_->Answer(0, GoodResponse().SerializeAsString());
  executor_->RunReady();
  EXPECT_TRUE(alive.expired());
}

TEST_F(CoreTest, DestructionWaitsForCalls) {
  // The only test whose executor has threads: destruction must block on them.
  auto transport = std::make_unique<FakeTransport>();
  FakeTransport* fake = transport.get();
  auto client = std::make_unique<CoreClient>(
      std::move(transport), std::make_unique<ThreadExecutor>(1),
      ClientOptions());
  bool done = false;
  client->ForwardAsync(Call(), {},
                       [&](absl::StatusOr<Report>) { done = true; });
  const std::string response = GoodResponse().SerializeAsString();
  std::thread answering([&] { fake->Answer(0, response); });
  client.reset();
  EXPECT_TRUE(done);
  answering.join();
}

TEST_F(CoreTest, HealthIsOkOnlyWhenServing) {
  std::string response;
  transport_->answer =
      [&](const FakeTransport::Attempt& attempt) -> Transport::Result {
    EXPECT_EQ(attempt.method, "/grpc.health.v1.Health/Check");
    EXPECT_EQ(attempt.Bytes(), "\x0a\x01x");
    return std::make_unique<FakeResponse>(response);
  };
  response = "\x08\x01";
  EXPECT_TRUE(client_->CheckHealth("x", {}).ok());
  for (const char* other : {"\x08\x02", "\x08\x03", "", "\x10\x01"}) {
    response = other;
    EXPECT_TRUE(absl::IsUnavailable(client_->CheckHealth("x", {})));
  }
}

}  // namespace
}  // namespace attnd::client
