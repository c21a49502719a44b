// Calls as they go out.

#include <cstdint>
#include <memory>
#include <string>

#include "attn/v1/attention.pb.h"
#include "tests/client/core_testing.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;
using ::testing::ElementsAre;

using CoreEncodeTest = CoreTest;

constexpr CallOptions kUnary = {.transport = TransportKind::kUnary};

TEST_F(CoreEncodeTest, ForwardSendsPlainProtobufOverTheCallersMemory) {
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
  call.plan = Plan::kGather;
  v1::ForwardRequest request;
  int borrowed = 0;
  transport_->answer =
      [&](const FakeTransport::Attempt& attempt) -> Transport::Result {
    EXPECT_EQ(attempt.method, "/attn.v1.AttentionService/Forward");
    EXPECT_EQ(attempt.headers.deadline, absl::InfiniteFuture());
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
  EXPECT_EQ(request.options().plan(), v1::PLAN_GATHER);
  EXPECT_EQ(request.options().priority(), v1::PRIORITY_LOW);
}

// What the default says would be refused by servers that are older than plans.
TEST_F(CoreEncodeTest, APlanIsSentOnlyWhereOneIsAskedFor) {
  v1::ForwardRequest request;
  transport_->answer =
      [&](const FakeTransport::Attempt& attempt) -> Transport::Result {
    EXPECT_TRUE(request.ParseFromString(attempt.Bytes()));
    return std::make_unique<FakeResponse>(GoodResponse().SerializeAsString());
  };
  ForwardCall call = Call();
  for (const auto& [plan, sent] : {std::pair{Plan::kAuto, v1::PLAN_UNSPECIFIED},
                                   {Plan::kOneDevice, v1::PLAN_ONE_DEVICE},
                                   {Plan::kHeads, v1::PLAN_HEADS},
                                   {Plan::kGather, v1::PLAN_GATHER},
                                   {Plan::kRing, v1::PLAN_RING},
                                   {Plan::kStriped, v1::PLAN_STRIPED},
                                   {Plan::kZigzag, v1::PLAN_ZIGZAG},
                                   {Plan::kKv, v1::PLAN_KV}}) {
    call.plan = plan;
    EXPECT_TRUE(client_->Forward(call, {}).ok());
    EXPECT_EQ(request.options().plan(), sent);
  }
}

TEST_F(CoreEncodeTest, OutputsThatAreNotWantedAreNotAskedFor) {
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

TEST_F(CoreEncodeTest, RefusesTensorsThatCannotBeSent) {
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
  call.o.dtype = static_cast<DType>(3);
  ExpectRefused(call, "o.dtype");
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
  ExpectRefused(call, "v", kUnary);  // 12 GiB
}

// The first number beyond each enum, which the wire would carry as a default.
TEST_F(CoreEncodeTest, RefusesEnumsThatHoldNoneOfTheirValues) {
  ForwardCall call = Call();
  call.attention.layout = static_cast<Layout>(3);
  ExpectRefused(call, "attention.layout");
  call = Call();
  call.algorithm = static_cast<Algorithm>(5);
  ExpectRefused(call, "options.algorithm");
  call = Call();
  call.plan = static_cast<Plan>(8);
  ExpectRefused(call, "options.plan");
  CallOptions options;
  options.priority = static_cast<Priority>(3);
  const absl::Status forward = client_->Forward(Call(), options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(forward)) << forward;
  BackwardCall backward;
  backward.attention.layout = static_cast<Layout>(255);
  backward.algorithm = static_cast<Algorithm>(255);
  const absl::Status status = client_->Backward(backward, {}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(wire::FieldViolations(status).at(0).field, "attention.layout");
  EXPECT_EQ(transport_->size(), 0);
}

TEST_F(CoreEncodeTest, RefusesWhatDoesNotFitAMessage) {
  ClientOptions options;
  options.max_message_bytes = q_.size() + k_.size() + 10;
  Reset(options);
  ExpectRefused(Call(), "v", kUnary);
  options.max_message_bytes = q_.size() + k_.size() + v_.size();
  Reset(options);
  ForwardCall call = Call();
  call.o = call.lse = {};
  ExpectRefused(call, "request", kUnary);
  options.max_message_bytes = o_.size() + 1;
  Reset(options);
  call = Call();
  call.v = call.k = {};
  ExpectRefused(call, "lse", kUnary);
}

}  // namespace
}  // namespace attnd::client
