// Servers that do not know a region, or no regions at all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/region_call_fixture.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::Status Unknown(const std::string& field) {
  absl::Status status = absl::NotFoundError(field + ": no such region");
  wire::AddFieldViolation(field, "no such region", status);
  return status;
}

TEST_F(RegionCallTest, WhereTheServerDoesNotKnowTheRegionItsBytesAreSent) {
  ClientOptions options;
  options.max_attempts = 1;  // it is none of them
  Reset(options);
  const auto region = AddRegion(kCallBytes);
  std::memcpy(region->at(0), q_.data(), q_.size());
  Start(CallIn(*region));
  Refuse(Unknown("q.region"));
  ASSERT_EQ(transport_->size(), 2);
  EXPECT_EQ(Sent().q().data(), q_);
  EXPECT_TRUE(Sent().v().has_data());
  EXPECT_FALSE(Sent().o().has_region());
  const v1::ForwardResponse response = GoodResponse();
  Answer(response);
  EXPECT_EQ(Done().transport, TransportKind::kUnary);
  EXPECT_EQ(Done().attempts, 1);
  EXPECT_THAT(Done().fallback, HasSubstr("does not know its region"));
  EXPECT_THAT(Done().fallback, HasSubstr("no such region"));
  EXPECT_EQ(std::string(region->at(3072), response.o().data().size()),
            response.o().data());

  // Later calls know, for good; and say why.
  executor_->Advance(absl::Hours(100));
  Start(CallIn(*region));
  EXPECT_TRUE(Sent().q().has_data());
  Answer(response);
  EXPECT_THAT(Done().fallback, StartsWith("q: the server does not know"));
  ASSERT_EQ(transport_->size(), 3);
  // Unless it is added again.
  client_->AddRegion(region);
  Start(CallIn(*region));
  EXPECT_TRUE(Sent().q().has_region());
  Answer(ResponseIn(*region));
  EXPECT_EQ(Done().fallback, "");
}

TEST_F(RegionCallTest, OfTwoRegionsTheOtherIsStillGood) {
  const auto known = AddRegion(kCallBytes, false, std::string(16, 'k'));
  const auto unknown = AddRegion(kCallBytes, false, std::string(16, 'u'));
  ForwardCall call = CallIn(*known);
  call.k.data = unknown->at(1024);
  Start(call);
  Refuse(Unknown("k.region.region"));
  EXPECT_TRUE(Sent().k().has_data());
  Answer(GoodResponse());
  Start(call);
  EXPECT_TRUE(Sent().k().has_data());
  EXPECT_EQ(Sent().q().region().region(), known->id());
  Answer(ResponseIn(*known));
  EXPECT_EQ(Done().transport, TransportKind::kRegion);
  EXPECT_THAT(Done().fallback, StartsWith("k: "));
}

TEST_F(RegionCallTest, WhereItDoesNotSayWhichNoneIsTriedAgain) {
  const auto a = AddRegion(kCallBytes, false, std::string(16, 'a'));
  const auto b = AddRegion(kCallBytes, false, std::string(16, 'b'));
  ForwardCall call = CallIn(*a);
  call.k.data = b->at(1024);
  Start(call);
  Refuse(absl::NotFoundError("what region?"));
  Answer(GoodResponse());
  Start(call);
  EXPECT_TRUE(Sent().q().has_data());
  EXPECT_TRUE(Sent().k().has_data());
  Answer(GoodResponse());
}

TEST_F(RegionCallTest, AServerOlderThanRegionsIsSentBytesForAMinute) {
  const auto region = AddRegion(kCallBytes);
  Start(CallIn(*region));
  Refuse(absl::UnimplementedError("q: unknown field 13 of attn.v1.Tensor"));
  EXPECT_TRUE(Sent().q().has_data());
  Answer(GoodResponse());
  EXPECT_THAT(Done().fallback, HasSubstr("the server lacks regions"));
  EXPECT_THAT(Done().fallback, HasSubstr("unknown field 13"));
  Start(CallIn(*region));
  EXPECT_TRUE(Sent().q().has_data());
  Answer(GoodResponse());
  EXPECT_THAT(Done().fallback, HasSubstr("the server lacks regions"));
  executor_->Advance(absl::Seconds(61));
  Start(CallIn(*region));
  EXPECT_TRUE(Sent().q().has_region());
  Answer(ResponseIn(*region));
  EXPECT_EQ(Done().fallback, "");
}

TEST_F(RegionCallTest, WhatIsRefusedEitherWaySaysNothingOfRegions) {
  const auto region = AddRegion(kCallBytes);
  for (const absl::Status& refusal :
       {absl::UnimplementedError("no such kernel"),
        absl::NotFoundError("nothing is here")}) {
    Start(CallIn(*region));
    EXPECT_TRUE(Sent().q().has_region());
    Refuse(refusal);
    EXPECT_TRUE(Sent().q().has_data());
    Refuse(refusal);
    EXPECT_EQ(Failed(), refusal);
  }
  Start(CallIn(*region));
  EXPECT_TRUE(Sent().q().has_region()) << "tries again";
  Answer(ResponseIn(*region));
}

TEST_F(RegionCallTest, OtherErrorsAreTheCalls) {
  const auto region = AddRegion(kCallBytes);
  for (const absl::Status& status :
       {absl::InvalidArgumentError("q overlaps o"),
        absl::FailedPreconditionError(""), absl::InternalError("")}) {
    const size_t sent = transport_->size();
    Start(CallIn(*region));
    Refuse(status);
    EXPECT_EQ(Failed(), status);
    EXPECT_EQ(transport_->size(), sent + 1);
  }
}

TEST_F(RegionCallTest, FallingBackEndsWithTheDeadline) {
  const auto region = AddRegion(kCallBytes);
  CallOptions options;
  options.timeout = absl::Seconds(1);
  Start(CallIn(*region), options);
  executor_->Advance(absl::Seconds(2));
  Refuse(Unknown("q.region"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Failed()));
  EXPECT_EQ(transport_->size(), 1);
}

TEST_F(RegionCallTest, CancelledWhileItFallsBackItSendsNothing) {
  const auto region = AddRegion(kCallBytes);
  Start(CallIn(*region));
  transport_->Answer(0, Transport::Result(Unknown("q.region")));
  cancel_();
  executor_->RunReady();
  EXPECT_TRUE(absl::IsCancelled(Failed()));
  EXPECT_EQ(transport_->size(), 1);
}

TEST_F(RegionCallTest, WhatHasFallenBackIsTriedAgainByItsBytes) {
  const auto region = AddRegion(kCallBytes);
  Start(CallIn(*region));
  Refuse(absl::UnavailableError("restarts"));
  executor_->Advance(absl::Seconds(1));
  Refuse(Unknown("q.region"));
  Refuse(absl::UnavailableError("busy"));
  executor_->Advance(absl::Seconds(10));
  ASSERT_EQ(transport_->size(), 4);
  EXPECT_TRUE(Sent().q().has_data());
  Answer(GoodResponse());
  EXPECT_EQ(Done().attempts, 3);
}

TEST_F(RegionCallTest, DeviceMemoryCannotFallBack) {
  const auto region = AddRegion(kCallBytes, /*on_device=*/true);
  for (int i = 0; i < 2; ++i) {
    Start(CallIn(*region));
    EXPECT_TRUE(Sent().q().has_region());
    Refuse(Unknown("q.region"));
    EXPECT_TRUE(absl::IsNotFound(Failed())) << Failed();
    EXPECT_THAT(std::string(Failed().message()), HasSubstr("no such region"));
    EXPECT_THAT(std::string(Failed().message()), HasSubstr("GPU"));
    EXPECT_EQ(wire::FieldViolations(Failed()).size(), 1);
    EXPECT_EQ(transport_->size(), i + 1);
  }
}

TEST_F(RegionCallTest, BesideDeviceMemoryTheRestFallsBack) {
  const auto device = AddRegion(kCallBytes, true, std::string(16, 'd'));
  const auto host = AddRegion(kCallBytes, false, std::string(16, 'h'));
  ForwardCall call = CallIn(*device);
  call.k.data = host->at(1024);
  Start(call);
  Refuse(Unknown("k.region"));
  EXPECT_TRUE(Sent().q().has_region());
  EXPECT_TRUE(Sent().k().has_data());
  Answer(ResponseIn(*device));
  EXPECT_EQ(Done().transport, TransportKind::kRegion);
  EXPECT_THAT(Done().fallback, StartsWith("k: "));
}

// Nine MiB of K in a region, or out of it.
class LargeRegionCallTest : public RegionCallTest {
 protected:
  static constexpr int64_t kRows = (9 << 20) / 64;

  ForwardCall LargeCall() {
    ForwardCall call;
    call.q = {DType::kF32, {1, 1, 1, 16}, region_->at(0)};
    call.k = {DType::kF32, {1, kRows, 1, 16}, region_->at(1024)};
    call.v = {DType::kF32, {1, kRows, 1, 1}, v_.data()};
    call.lse = {DType::kF32, {1, 1, 1}, region_->at(10 << 20)};
    return call;
  }
  // What the server answers to it, by reference or not.
  v1::ForwardResponse LargeResponse(bool by_reference) {
    v1::ForwardResponse response;
    Fill(DType::kF32, {1, 1, 1}, *response.mutable_lse());
    if (by_reference) {
      SetPlace(*response.mutable_lse(), *region_, 10 << 20);
    }
    return response;
  }

  std::shared_ptr<FakeRegion> region_ = AddRegion(11 << 20);
  std::string v_ = std::string(kRows * 4, 'v');
};

TEST_F(LargeRegionCallTest, FallsBackToAnExchangeBySize) {
  Start(LargeCall());
  ASSERT_EQ(transport_->size(), 1);
  Refuse(Unknown("k.region"));
  ASSERT_EQ(transport_->streams.size(), 1);
  v1::ExchangeRequest message;
  ASSERT_TRUE(message.ParseFromString(stream(0).written[0]));
  EXPECT_TRUE(message.header().forward().k().has_streamed());
  EXPECT_FALSE(message.header().forward().lse().has_region());
  stream(0).TakeWrite();
  stream(0).Send(Admitted(1, wire::kMaxChunkBytes));
  while (stream(0).writing) stream(0).TakeWrite();
  v1::ExchangeResponse answer;
  *answer.mutable_forward() = LargeResponse(false);
  stream(0).Send(answer.SerializeAsString());
  EndStream(0, absl::OkStatus());
  EXPECT_EQ(Done().transport, TransportKind::kStream);
  EXPECT_EQ(Done().attempts, 1);
  EXPECT_THAT(Done().fallback, HasSubstr("does not know"));
}

// A server of the first version: neither regions nor Exchange.
TEST_F(LargeRegionCallTest, GoesOnWithoutRegionsAndThenWithoutExchange) {
  Start(LargeCall());
  Refuse(absl::UnimplementedError("unknown field 13"));
  ASSERT_EQ(transport_->streams.size(), 1);
  EndStream(0, absl::UnimplementedError("no such method"));
  ASSERT_EQ(transport_->size(), 2);
  EXPECT_TRUE(Sent().k().has_data());
  Answer(LargeResponse(false));
  EXPECT_EQ(Done().transport, TransportKind::kUnary);
  EXPECT_EQ(Done().attempts, 1);
  EXPECT_THAT(Done().fallback, HasSubstr("the server lacks regions"));
  // The next call knows both.
  Start(LargeCall());
  EXPECT_EQ(transport_->streams.size(), 1);
  ASSERT_EQ(transport_->size(), 3);
  EXPECT_TRUE(Sent().k().has_data());
  Answer(LargeResponse(false));
}

TEST_F(LargeRegionCallTest,
       AnExchangeWithReferencesFallsBackBeforeItIsAdmitted) {
  // V's 9 / 16 MiB and another 9 MiB of bias travel.
  std::string bias(9 << 20, 'b');
  ForwardCall call = LargeCall();
  call.bias = {DType::kF32, {1, 1, 1, kRows * 16}, bias.data()};
  Start(call);
  ASSERT_EQ(transport_->streams.size(), 1);
  v1::ExchangeRequest message;
  ASSERT_TRUE(message.ParseFromString(stream(0).written[0]));
  EXPECT_TRUE(message.header().forward().k().has_region());
  EndStream(0, Unknown("header.forward.k.region"));
  ASSERT_EQ(transport_->streams.size(), 2);
  ASSERT_TRUE(message.ParseFromString(stream(1).written[0]));
  EXPECT_TRUE(message.header().forward().k().has_streamed());
  // Once tensors have been sent a refusal is the call's.
  stream(1).TakeWrite();
  stream(1).Send(Admitted(1));
  EndStream(1, absl::NotFoundError("late"));
  EXPECT_EQ(Failed(), absl::NotFoundError("late"));
  EXPECT_EQ(transport_->streams.size(), 2);
}

}  // namespace
}  // namespace attnd::client
