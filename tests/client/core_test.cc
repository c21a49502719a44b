// The client over a transport and an executor that the test steps by hand.

#include "client/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/random/random.h"
#include "attn/v1/attention.pb.h"
#include "proto/status.h"
#include "tests/client/fake_transport.h"
#include "tests/client/manual_executor.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string RandomBytes(size_t size) {
  static absl::BitGen rng;
  std::string bytes(size, '\0');
  for (char& c : bytes) c = absl::Uniform<uint8_t>(rng);
  return bytes;
}

class CoreTest : public ::testing::Test {
 protected:
  CoreTest() { Reset({}); }

  void Reset(const ClientOptions& options) {
    auto transport = std::make_unique<FakeTransport>();
    auto executor = std::make_unique<ManualExecutor>();
    transport_ = transport.get();
    executor_ = executor.get();
    client_ = std::make_unique<CoreClient>(std::move(transport),
                                           std::move(executor), options);
  }

  // A forward of bf16 [2, 3, 4, 5] queries with values of 6.
  ForwardCall Call() {
    ForwardCall call;
    call.q = {DType::kBF16, {2, 3, 4, 5}, q_.data()};
    call.k = {DType::kBF16, {2, 7, 2, 5}, k_.data()};
    call.v = {DType::kBF16, {2, 7, 2, 6}, v_.data()};
    call.o = {DType::kF32, {2, 3, 4, 6}, o_.data()};
    call.lse = {DType::kF32, {2, 4, 3}, lse_.data()};
    return call;
  }

  // A response that fits that call.
  v1::ForwardResponse GoodResponse() {
    v1::ForwardResponse response;
    Fill(DType::kF32, {2, 3, 4, 6}, *response.mutable_o());
    Fill(DType::kF32, {2, 4, 3}, *response.mutable_lse());
    response.mutable_report()->set_device("cpu:0 test");
    response.mutable_report()->set_algorithm(v1::ALGORITHM_FLASH_ATTENTION_1);
    response.mutable_report()->set_kernel("test/kernel");
    response.mutable_report()->set_batch_requests(3);
    response.mutable_report()->set_flops(1e9);
    response.mutable_report()->mutable_phases()->set_queue_ns(1);
    response.mutable_report()->mutable_phases()->set_upload_ns(2);
    response.mutable_report()->mutable_phases()->set_compute_ns(3);
    response.mutable_report()->mutable_phases()->set_download_ns(4);
    return response;
  }
  static void Fill(DType dtype, const std::vector<int64_t>& shape,
                   v1::Tensor& tensor) {
    int64_t bytes = SizeOf(dtype);
    tensor.set_dtype(dtype == DType::kF32 ? v1::DATA_TYPE_F32
                                          : v1::DATA_TYPE_BF16);
    for (const int64_t extent : shape) {
      tensor.add_shape(extent);
      bytes *= extent;
    }
    tensor.set_data(RandomBytes(bytes));
  }

  absl::Status ForwardWith(const std::string& response) {
    transport_->answer =
        [&](const FakeTransport::Attempt&) -> Transport::Result {
      return std::make_unique<FakeResponse>(response);
    };
    return client_->Forward(Call(), {}).status();
  }

  // INTERNAL naming `field`.
  void ExpectBadResponse(const v1::ForwardResponse& response,
                         const std::string& field) {
    const absl::Status status = ForwardWith(response.SerializeAsString());
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
    ASSERT_EQ(wire::FieldViolations(status).size(), 1);
    EXPECT_EQ(wire::FieldViolations(status)[0].field, field);
  }

  // Refused before anything is sent.
  void ExpectRefused(const ForwardCall& call, const std::string& field) {
    const size_t sent = transport_->size();
    const absl::Status status = client_->Forward(call, {}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    ASSERT_EQ(wire::FieldViolations(status).size(), 1) << status;
    EXPECT_EQ(wire::FieldViolations(status)[0].field, field) << status;
    EXPECT_EQ(transport_->size(), sent);
  }

  std::string q_ = RandomBytes(2 * 3 * 4 * 5 * 2);
  std::string k_ = RandomBytes(2 * 7 * 2 * 5 * 2);
  std::string v_ = RandomBytes(2 * 7 * 2 * 6 * 2);
  std::string o_ = std::string(2 * 3 * 4 * 6 * 4, '\xff');
  std::string lse_ = std::string(2 * 4 * 3 * 4, '\xff');
  FakeTransport* transport_ = nullptr;
  ManualExecutor* executor_ = nullptr;
  std::unique_ptr<CoreClient> client_;
};

TEST_F(CoreTest, ForwardSendsPlainProtobufOverTheCallersMemory) {
  ForwardCall call = Call();
  std::string bias = RandomBytes(1 * 4 * 3 * 7 * 4);
  call.bias = {DType::kF32, {1, 4, 3, 7}, bias.data()};
  call.attention.layout = Layout::kBshd;
  call.attention.scale = 0.0f;
  call.attention.softcap = 30.0f;
  call.attention.mask = {true, 5, 0};
  call.attention.q_lens = {3, 1};
  call.attention.kv_lens = {7, 0};
  call.attention.q_start = {-4};
  call.attention.kv_start = {1, 2};
  call.attention.q_stride = 2;
  call.algorithm = Algorithm::kOnlineSoftmax;
  v1::ForwardRequest request;
  int borrowed = 0;
  transport_->answer =
      [&](const FakeTransport::Attempt& attempt) -> Transport::Result {
    EXPECT_EQ(attempt.method, "/attn.v1.AttentionService/Forward");
    EXPECT_EQ(attempt.deadline, absl::InfiniteFuture());
    EXPECT_TRUE(request.ParseFromString(attempt.Bytes()));
    for (const wire::Piece& piece : *attempt.pieces) {
      for (const char* memory :
           {q_.data(), k_.data(), v_.data(), bias.data()}) {
        borrowed += piece.borrowed.data() == memory;
      }
    }
    return std::make_unique<FakeResponse>(GoodResponse().SerializeAsString());
  };
  CallOptions options;
  options.priority = Priority::kLow;
  const auto report = client_->Forward(call, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(borrowed, 4) << "copied";
  EXPECT_EQ(request.q().data(), q_);
  EXPECT_EQ(request.q().dtype(), v1::DATA_TYPE_BF16);
  EXPECT_THAT(request.q().shape(), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(request.k().data(), k_);
  EXPECT_EQ(request.v().data(), v_);
  EXPECT_EQ(request.bias().data(), bias);
  const v1::Attention& attention = request.attention();
  EXPECT_TRUE(attention.has_scale());
  EXPECT_EQ(attention.scale(), 0);
  EXPECT_EQ(attention.softcap(), 30);
  EXPECT_TRUE(attention.mask().causal());
  EXPECT_EQ(attention.mask().window_left(), 5);
  EXPECT_TRUE(attention.mask().has_window_right());
  EXPECT_THAT(attention.q_lens(), ElementsAre(3, 1));
  EXPECT_THAT(attention.kv_lens(), ElementsAre(7, 0));
  EXPECT_THAT(attention.q_start(), ElementsAre(-4));
  EXPECT_THAT(attention.kv_start(), ElementsAre(1, 2));
  EXPECT_EQ(attention.q_stride(), 2);
  EXPECT_FALSE(attention.has_kv_stride());
  EXPECT_TRUE(request.o().want());
  EXPECT_EQ(request.o().dtype(), v1::DATA_TYPE_F32);
  EXPECT_TRUE(request.lse().want());
  EXPECT_EQ(request.options().algorithm(), v1::ALGORITHM_ONLINE_SOFTMAX);
  EXPECT_EQ(request.options().priority(), v1::PRIORITY_LOW);
}

TEST_F(CoreTest, ForwardCopiesOutputsAndReport) {
  const v1::ForwardResponse response = GoodResponse();
  transport_->answer = [&](const FakeTransport::Attempt&) -> Transport::Result {
    return std::make_unique<FakeResponse>(response.SerializeAsString());
  };
  const auto report = client_->Forward(Call(), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(o_, response.o().data());
  EXPECT_EQ(lse_, response.lse().data());
  EXPECT_EQ(report->device, "cpu:0 test");
  EXPECT_EQ(report->kernel, "test/kernel");
  EXPECT_EQ(report->algorithm, Algorithm::kFlashAttention1);
  EXPECT_EQ(report->batch_requests, 3);
  EXPECT_EQ(report->flops, 1e9);
  EXPECT_EQ(report->queue, absl::Nanoseconds(1));
  EXPECT_EQ(report->upload, absl::Nanoseconds(2));
  EXPECT_EQ(report->compute, absl::Nanoseconds(3));
  EXPECT_EQ(report->download, absl::Nanoseconds(4));
  EXPECT_EQ(report->attempts, 1);
}

TEST_F(CoreTest, OutputsThatAreNotWantedAreNotAskedFor) {
  ForwardCall call = Call();
  call.lse = {};
  v1::ForwardRequest request;
  v1::ForwardResponse response = GoodResponse();
  response.clear_lse();
  transport_->answer =
      [&](const FakeTransport::Attempt& attempt) -> Transport::Result {
    EXPECT_TRUE(request.ParseFromString(attempt.Bytes()));
    return std::make_unique<FakeResponse>(response.SerializeAsString());
  };
  EXPECT_TRUE(client_->Forward(call, {}).ok());
  EXPECT_TRUE(request.lse().has_want());
  EXPECT_FALSE(request.lse().want());
}

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
  EXPECT_EQ(out[0], response.dq().data());
  EXPECT_EQ(out[1], response.dk().data());
  EXPECT_EQ(out[2], response.dv().data());
}

TEST_F(CoreTest, RefusesTensorsThatCannotBeSent) {
  ForwardCall call = Call();
  call.k.shape[1] = -7;
  ExpectRefused(call, "k.shape");
  call = Call();
  call.v.shape = {int64_t{1} << 40, int64_t{1} << 40, 1, 6};
  call.o = {};
  ExpectRefused(call, "v.shape");
  call = Call();
  call.q.shape = {0, int64_t{1} << 62, int64_t{1} << 62, 1};
  call.o = call.lse = {};
  ExpectRefused(call, "q.shape");
  call = Call();
  call.k.data = nullptr;
  ExpectRefused(call, "k.data");
  call = Call();
  call.q.dtype = static_cast<DType>(77);
  ExpectRefused(call, "q.dtype");
  call = Call();
  call.o.shape = {2, 3, 4, 5};
  ExpectRefused(call, "o.shape");
  call = Call();
  call.lse.shape = {2, 3, 4};
  ExpectRefused(call, "lse.shape");
  call = Call();
  call.o.data = nullptr;
  ExpectRefused(call, "o.data");
  call = Call();
  call.v.shape = {1, 1 << 20, 1 << 10, 6};
  call.o = {};
  ExpectRefused(call, "v");  // 12 GiB
}

TEST_F(CoreTest, RefusesWhatDoesNotFitAMessage) {
  ClientOptions options;
  options.max_message_bytes = q_.size() + k_.size() + 10;
  Reset(options);
  ExpectRefused(Call(), "v");
  options.max_message_bytes = q_.size() + k_.size() + v_.size();
  Reset(options);
  ForwardCall call = Call();
  call.o = call.lse = {};
  ExpectRefused(call, "request");
  options.max_message_bytes = o_.size() + 1;
  Reset(options);
  call = Call();
  call.v = call.k = {};
  ExpectRefused(call, "lse");
}

TEST_F(CoreTest, AResponseThatDoesNotFitNamesItsField) {
  v1::ForwardResponse response = GoodResponse();
  response.clear_o();
  ExpectBadResponse(response, "o");
  response = GoodResponse();
  response.mutable_o()->set_dtype(v1::DATA_TYPE_BF16);
  ExpectBadResponse(response, "o.dtype");
  response = GoodResponse();
  response.mutable_o()->set_dtype(static_cast<v1::DataType>(99));
  ExpectBadResponse(response, "o.dtype");
  response = GoodResponse();
  response.mutable_lse()->set_shape(1, 5);
  ExpectBadResponse(response, "lse.shape");
  response = GoodResponse();
  response.mutable_lse()->add_shape(1);
  ExpectBadResponse(response, "lse.shape");
  response = GoodResponse();
  response.mutable_lse()->mutable_data()->pop_back();
  ExpectBadResponse(response, "lse.data");
  response = GoodResponse();
  response.mutable_lse()->mutable_data()->push_back('x');
  ExpectBadResponse(response, "lse.data");
  response = GoodResponse();
  response.mutable_o()->clear_data();
  ExpectBadResponse(response, "o.data");
}

TEST_F(CoreTest, AGarbledResponseIsInternal) {
  v1::ForwardResponse response = GoodResponse();
  response.clear_report();  // without it, a response is whole
  const std::string good = response.SerializeAsString();
  for (size_t size = 1; size < good.size(); ++size) {
    const absl::Status status = ForwardWith(good.substr(0, size));
    EXPECT_TRUE(absl::IsInternal(status)) << size << " " << status;
  }
  EXPECT_TRUE(absl::IsInternal(ForwardWith("")));
}

TEST_F(CoreTest, UnknownResponseFieldsAreIgnored) {
  // Field 1000, a varint.
  const std::string more("\xc0\x3e\x05", 3);
  EXPECT_TRUE(ForwardWith(GoodResponse().SerializeAsString() + more).ok());
}

TEST_F(CoreTest, AsyncCallsEndOnTheExecutorWithTheirReport) {
  const v1::ForwardResponse response = GoodResponse();
  std::optional<absl::StatusOr<Report>> result;
  client_->ForwardAsync(Call(), {absl::Seconds(30)},
                        [&](absl::StatusOr<Report> r) { result = r; });
  ASSERT_EQ(transport_->size(), 1);
  EXPECT_EQ(transport_->at(0).deadline, executor_->Now() + absl::Seconds(30));
  executor_->Advance(absl::Seconds(2));
  transport_->Answer(0, response.SerializeAsString());
  EXPECT_FALSE(result.has_value());
  executor_->RunReady();
  ASSERT_TRUE(result.has_value());
  ASSERT_TRUE(result->ok()) << result->status();
  EXPECT_EQ(o_, response.o().data());
  EXPECT_EQ((*result)->total, absl::Seconds(2));
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

TEST_F(CoreTest, ServerInfoIsReadWhole) {
  v1::GetServerInfoResponse response;
  response.set_server_instance_id("0123");
  response.set_version("9.8");
  response.add_features("streaming");
  v1::Device& device = *response.add_devices();
  device.set_kind("cpu");
  device.set_index(2);
  device.set_name("name");
  device.set_memory_bytes(5);
  device.set_in_service(true);
  response.mutable_limits()->set_max_message_bytes(1);
  response.mutable_limits()->set_memory_limit_bytes(2);
  response.mutable_limits()->set_max_queue_requests(3);
  response.mutable_limits()->set_max_queue_flops(4);
  response.mutable_limits()->set_max_request_flops(5);
  response.mutable_limits()->set_max_head_dim(6);
  response.set_preferred_chunk_bytes(7);
  transport_->answer =
      [&](const FakeTransport::Attempt& attempt) -> Transport::Result {
    EXPECT_EQ(attempt.method, "/attn.v1.AttentionService/GetServerInfo");
    EXPECT_THAT(attempt.Bytes(), IsEmpty());
    return std::make_unique<FakeResponse>(response.SerializeAsString());
  };
  const auto info = client_->GetServerInfo({});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->server_instance_id, "0123");
  EXPECT_EQ(info->version, "9.8");
  EXPECT_THAT(info->features, ElementsAre("streaming"));
  ASSERT_EQ(info->devices.size(), 1);
  EXPECT_EQ(info->devices[0].kind, "cpu");
  EXPECT_EQ(info->devices[0].index, 2);
  EXPECT_EQ(info->devices[0].name, "name");
  EXPECT_EQ(info->devices[0].memory_bytes, 5);
  EXPECT_TRUE(info->devices[0].in_service);
  EXPECT_EQ(info->max_message_bytes, 1);
  EXPECT_EQ(info->memory_limit_bytes, 2);
  EXPECT_EQ(info->max_queue_requests, 3);
  EXPECT_EQ(info->max_queue_flops, 4);
  EXPECT_EQ(info->max_request_flops, 5);
  EXPECT_EQ(info->max_head_dim, 6);
  EXPECT_EQ(info->preferred_chunk_bytes, 7);
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

TEST(ClientOptionsTest, DefaultsAreValidAndBadValuesAreNamed) {
  EXPECT_TRUE(ClientOptions().Validate().ok());
  const auto refused = [](auto change, const char* field) {
    ClientOptions options;
    change(options);
    const absl::Status status = options.Validate();
    ASSERT_EQ(wire::FieldViolations(status).size(), 1) << field;
    EXPECT_EQ(wire::FieldViolations(status)[0].field, field);
  };
  using O = ClientOptions;
  refused([](O& o) { o.max_message_bytes = 0; }, "max_message_bytes");
  refused([](O& o) { o.max_message_bytes = int64_t{1} << 31; },
          "max_message_bytes");
  refused([](O& o) { o.keepalive_time = absl::ZeroDuration(); },
          "keepalive_time");
  // Oftener than servers allow.
  refused([](O& o) { o.keepalive_time = absl::Milliseconds(999); },
          "keepalive_time");
  refused([](O& o) { o.keepalive_timeout = absl::InfiniteDuration(); },
          "keepalive_timeout");
  refused([](O& o) { o.max_attempts = 0; }, "max_attempts");
  refused([](O& o) { o.initial_backoff = -absl::Seconds(1); },
          "initial_backoff");
  refused([](O& o) { o.max_backoff = absl::Hours(25); }, "max_backoff");
  refused([](O& o) { o.retry_budget = -0.1; }, "retry_budget");
  refused([](O& o) { o.retry_budget = std::nan(""); }, "retry_budget");
  refused([](O& o) { o.connections = 0; }, "connections");
  refused([](O& o) { o.executor_threads = 1000; }, "executor_threads");
}

}  // namespace
}  // namespace attnd::client
