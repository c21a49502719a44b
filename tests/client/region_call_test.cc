// Which tensors go by reference, and what a response must say of them.

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

void ExpectAt(const v1::RegionSlice& slice, const FakeRegion& region,
              int64_t offset) {
  EXPECT_EQ(slice.region(), region.id());
  EXPECT_EQ(slice.offset(), offset);
}

TEST_F(RegionCallTest, EveryTensorOfAForwardGoesByReference) {
  const auto region = AddRegion(8192);
  ForwardCall call = CallIn(*region);
  call.bias = {DType::kF32, {1, 4, 3, 7}, region->at(5120)};
  Start(call);
  const v1::ForwardRequest request = Sent();
  ExpectAt(request.q().region(), *region, 0);
  ExpectAt(request.k().region(), *region, 1024);
  ExpectAt(request.v().region(), *region, 2048);
  ExpectAt(request.bias().region(), *region, 5120);
  ExpectAt(request.o().region(), *region, 3072);
  ExpectAt(request.lse().region(), *region, 4096);
  EXPECT_EQ(request.q().dtype(), v1::DATA_TYPE_BF16);
  EXPECT_THAT(request.q().shape(), ::testing::ElementsAre(2, 3, 4, 5));
  EXPECT_TRUE(request.o().want());

  std::memset(region->at(3072), 'o', 100);
  Answer(ResponseIn(*region));
  EXPECT_EQ(Done().transport, TransportKind::kRegion);
  EXPECT_EQ(Done().fallback, "");
  EXPECT_EQ(Done().attempts, 1);
  EXPECT_EQ(Done().device, "cpu:0 test");
  EXPECT_EQ(std::string(region->at(3072), 100), std::string(100, 'o'));
}

TEST_F(RegionCallTest, EveryTensorOfABackwardGoesByReference) {
  const auto region = AddRegion(16 << 10);
  const std::vector<int64_t> shape = {1, 2, 1, 4}, rows = {1, 1, 2};
  BackwardCall call;
  int64_t next = 0;
  const auto input = [&](const std::vector<int64_t>& of) {
    return ConstTensor{DType::kF32, of, region->at(next++ * 1024)};
  };
  call.q = input(shape);
  call.k = input(shape);
  call.v = input(shape);
  call.bias = input({1, 1, 2, 2});
  call.d_o = input(shape);
  call.lse = input(rows);
  call.o = input(shape);
  call.delta = input(rows);
  call.d_lse = input(rows);
  call.dq = {DType::kF32, shape, region->at(9 * 1024)};
  call.dk = {DType::kF32, shape, region->at(10 * 1024)};
  call.dv = {DType::kF32, shape, region->at(11 * 1024)};
  absl::StatusOr<Report> report;
  client_->BackwardAsync(
      call, {}, [&](absl::StatusOr<Report> r) { report = std::move(r); });
  v1::BackwardRequest request;
  ASSERT_TRUE(request.ParseFromString(transport_->at(0).Bytes()));
  int64_t at = 0;
  for (const v1::Tensor* tensor :
       {&request.q(), &request.k(), &request.v(), &request.bias(),
        &request.d_o(), &request.lse(), &request.o(), &request.delta(),
        &request.d_lse()}) {
    ExpectAt(tensor->region(), *region, at++ * 1024);
  }
  for (const v1::OutputSpec* output :
       {&request.dq(), &request.dk(), &request.dv()}) {
    ExpectAt(output->region(), *region, at++ * 1024);
  }
  v1::BackwardResponse response;
  at = 9;
  for (v1::Tensor* tensor :
       {response.mutable_dq(), response.mutable_dk(), response.mutable_dv()}) {
    Fill(DType::kF32, shape, *tensor);
    SetPlace(*tensor, *region, at++ * 1024);
  }
  transport_->Answer(0, response.SerializeAsString());
  executor_->RunReady();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->transport, TransportKind::kRegion);
}

TEST_F(RegionCallTest, WhatLiesElsewhereIsSent) {
  const auto region = AddRegion(4096);
  ForwardCall call = Call();
  call.k.data = region->at(256);
  Start(call);
  const v1::ForwardRequest request = Sent();
  EXPECT_EQ(request.q().data(), q_);
  ExpectAt(request.k().region(), *region, 256);
  EXPECT_EQ(request.v().data(), v_);
  EXPECT_FALSE(request.o().has_region());
  const v1::ForwardResponse response = GoodResponse();
  Answer(response);
  EXPECT_EQ(Done().transport, TransportKind::kRegion);
  EXPECT_EQ(o_, response.o().data());
}

TEST_F(RegionCallTest, OfSeveralRegionsEachTensorHasItsOwn) {
  std::vector<std::shared_ptr<FakeRegion>> regions;
  for (const char id : {'a', 'b', 'c'}) {
    regions.push_back(AddRegion(1024, false, std::string(16, id)));
  }
  ForwardCall call = Call();
  call.q.data = regions[1]->at(256);
  call.k.data = regions[2]->at(0);
  call.v.data = regions[0]->at(512);
  Start(call);
  ExpectAt(Sent().q().region(), *regions[1], 256);
  ExpectAt(Sent().k().region(), *regions[2], 0);
  ExpectAt(Sent().v().region(), *regions[0], 512);
  // One that was removed is memory like any other.
  client_->RemoveRegion(regions[2]);
  client_->RemoveRegion(regions[2]);
  Start(call);
  EXPECT_TRUE(Sent().k().has_data());
  ExpectAt(Sent().q().region(), *regions[1], 256);
  Refuse(absl::InternalError(""));
  transport_->Answer(0, Transport::Result(absl::InternalError("")));
  executor_->RunReady();
}

TEST_F(RegionCallTest, WhatCannotGoByReferenceIsSentAndSaysWhy) {
  // K has 280 bytes, V 336.
  const auto region = AddRegion(2048);
  ForwardCall call = Call();
  call.k.data = region->at(2048 - 256);
  Start(call);
  EXPECT_EQ(Sent().k().data(), std::string(region->at(1792), 256) +
                                   std::string(region->at(2048), 24))
      << "the memory behind it is the caller's affair";
  Answer(GoodResponse());
  EXPECT_THAT(Done().fallback, StartsWith("k: lies in its region in part"));
  EXPECT_EQ(Done().transport, TransportKind::kUnary);

  call = Call();
  call.v.data = region->at(128);
  Start(call);
  EXPECT_TRUE(Sent().v().has_data());
  Answer(GoodResponse());
  EXPECT_THAT(Done().fallback, StartsWith("v: lies at 128 of its region"));

  // The last bytes of a region are as good as any.
  call = Call();
  call.k.data = region->at(2048 - 512);
  Start(call);
  ExpectAt(Sent().k().region(), *region, 1536);
  Answer(GoodResponse());
  EXPECT_EQ(Done().fallback, "");

  region->state = absl::UnavailableError("the server has ended the lease");
  Start(call);
  EXPECT_TRUE(Sent().k().has_data());
  Answer(GoodResponse());
  EXPECT_EQ(Done().fallback,
            "k: its region is not leased: the server has ended the lease");
}

TEST_F(RegionCallTest, EmptyTensorsAreNowhere) {
  const auto region = AddRegion(4096);
  ForwardCall call;
  call.q = {DType::kF32, {1, 0, 2, 4}, region->at(0)};
  call.k = call.v = {DType::kF32, {1, 0, 2, 4}, nullptr};
  call.o = {DType::kF32, {1, 0, 2, 4}, region->at(0)};
  CallOptions options;
  options.transport = TransportKind::kRegion;
  Start(call, options);
  const v1::ForwardRequest request = Sent();
  EXPECT_FALSE(request.q().has_region());
  EXPECT_FALSE(request.o().has_region());
  v1::ForwardResponse response;
  Fill(DType::kF32, {1, 0, 2, 4}, *response.mutable_o());
  Answer(response);
  EXPECT_EQ(Done().fallback, "");
}

TEST_F(RegionCallTest, AllMustLieInARegionWhereThatIsAskedFor) {
  const auto region = AddRegion(kCallBytes);
  CallOptions options;
  options.transport = TransportKind::kRegion;
  Start(CallIn(*region), options);
  Answer(ResponseIn(*region));
  EXPECT_EQ(Done().transport, TransportKind::kRegion);

  ForwardCall call = CallIn(*region);
  call.k.data = k_.data();
  ExpectRefused(call, "k", options);
  call = CallIn(*region);
  call.lse.data = lse_.data();
  ExpectRefused(call, "lse", options);
  call = CallIn(*region);
  call.q.data = region->at(8);
  ExpectRefused(call, "q", options);
  call.q.data = nullptr;
  ExpectRefused(call, "q.data", options);

  region->state = absl::UnavailableError("ended");
  Start(CallIn(*region), options);
  EXPECT_TRUE(absl::IsFailedPrecondition(Failed())) << Failed();

  // It does not fall back.
  region->state = absl::OkStatus();
  const size_t sent = transport_->size();
  Start(CallIn(*region), options);
  Refuse(absl::NotFoundError("no such region"));
  EXPECT_EQ(Failed(), absl::NotFoundError("no such region"));
  EXPECT_EQ(transport_->size(), sent + 1);
}

TEST_F(RegionCallTest, BytesTravelWhereThatIsAskedFor) {
  const auto region = AddRegion(kCallBytes);
  std::memcpy(region->at(0), q_.data(), q_.size());
  CallOptions options;
  options.transport = TransportKind::kUnary;
  Start(CallIn(*region), options);
  EXPECT_EQ(Sent().q().data(), q_);
  EXPECT_FALSE(Sent().o().has_region());
  const v1::ForwardResponse response = GoodResponse();
  Answer(response);
  EXPECT_EQ(Done().transport, TransportKind::kUnary);
  EXPECT_EQ(Done().fallback, "");
  EXPECT_EQ(std::string(region->at(3072), response.o().data().size()),
            response.o().data());

  options.transport = TransportKind::kStream;
  Start(CallIn(*region), options);
  v1::ExchangeRequest message;
  ASSERT_TRUE(message.ParseFromString(stream(0).written[0]));
  EXPECT_EQ(message.header().forward().q().data(), q_);
  EndStream(0, absl::InternalError(""));
}

TEST_F(RegionCallTest, DeviceMemoryHasNoBytesToSend) {
  const auto region = AddRegion(kCallBytes, /*on_device=*/true);
  Start(CallIn(*region));
  ExpectAt(Sent().q().region(), *region, 0);
  Answer(ResponseIn(*region));
  EXPECT_EQ(Done().transport, TransportKind::kRegion);

  for (const TransportKind kind :
       {TransportKind::kUnary, TransportKind::kStream}) {
    CallOptions options;
    options.transport = kind;
    ExpectRefused(CallIn(*region), "q", options);
  }
  ForwardCall call = CallIn(*region);
  call.k.data = region->at(100);
  ExpectRefused(call, "k");
  call = CallIn(*region);
  call.o.data = region->at(kCallBytes - 256);  // goes on behind it
  ExpectRefused(call, "o");
  call.o.data = region->at(-8);  // begins before it
  ExpectRefused(call, "o");
  region->state = absl::UnavailableError("ended");
  Start(CallIn(*region));
  EXPECT_TRUE(absl::IsFailedPrecondition(Failed())) << Failed();
  EXPECT_THAT(std::string(Failed().message()), HasSubstr("q: "));
}

TEST_F(RegionCallTest, ResultsMustBeWhereTheyWereAskedFor) {
  const auto region = AddRegion(kCallBytes);
  const auto expect_bad = [&](const v1::ForwardResponse& response,
                              const std::string& field) {
    Start(CallIn(*region));
    Answer(response);
    EXPECT_TRUE(absl::IsInternal(Failed())) << Failed();
    const auto violations = wire::FieldViolations(Failed());
    ASSERT_EQ(violations.size(), 1);
    EXPECT_EQ(violations[0].field, field);
  };
  expect_bad(GoodResponse(), "o.region");
  v1::ForwardResponse response = ResponseIn(*region);
  response.mutable_o()->mutable_region()->set_region("another");
  expect_bad(response, "o.region");
  response = ResponseIn(*region);
  response.mutable_lse()->mutable_region()->set_offset(0);
  expect_bad(response, "lse.region");
  response = ResponseIn(*region);
  response.mutable_o()->mutable_streamed();
  expect_bad(response, "o");
  response = ResponseIn(*region);
  response.mutable_o()->set_shape(0, 3);
  expect_bad(response, "o.shape");
  response = ResponseIn(*region);
  response.clear_lse();
  expect_bad(response, "lse");

  // Nor where they were not.
  response = GoodResponse();
  SetPlace(*response.mutable_o(), *region, 3072);
  ExpectBadResponse(response, "o.region");
}

TEST_F(RegionCallTest, OnlyWhatTravelsCountsForHow) {
  // Of 32 MiB there are 24 in the region.
  const int64_t bytes = 8 << 20;
  const auto region = AddRegion(4 * bytes);
  const std::vector<int64_t> shape = {1, bytes / 64, 1, 16};
  ForwardCall call;
  call.q = {DType::kF32, shape, region->at(0)};
  call.k = {DType::kF32, shape, region->at(bytes)};
  call.v = {DType::kF32, shape, region->at(2 * bytes)};
  call.o = {DType::kF32, shape, region->at(3 * bytes)};
  Start(call);
  EXPECT_EQ(transport_->size(), 1);
  v1::ForwardResponse response;
  response.mutable_o()->set_dtype(v1::DATA_TYPE_F32);
  response.mutable_o()->mutable_shape()->Add(shape.begin(), shape.end());
  SetPlace(*response.mutable_o(), *region, 3 * bytes);
  Answer(response);
  EXPECT_EQ(Done().transport, TransportKind::kRegion);
  EXPECT_EQ(transport_->streams.size(), 0);

  std::string k(bytes, 'k');
  call.k.data = k.data();
  Start(call);
  ASSERT_EQ(transport_->streams.size(), 1);
  v1::ExchangeRequest message;
  ASSERT_TRUE(message.ParseFromString(stream(0).written[0]));
  EXPECT_EQ(message.header().streams(), 1) << "8 MiB travel";
  const v1::ForwardRequest& request = message.header().forward();
  ExpectAt(request.q().region(), *region, 0);
  EXPECT_TRUE(request.k().has_streamed());
  ExpectAt(request.o().region(), *region, 3 * bytes);
  stream(0).TakeWrite();
  stream(0).Send(Admitted(1, wire::kMaxChunkBytes));
  int chunks = -1;
  for (; stream(0).writing; ++chunks) stream(0).TakeWrite();
  EXPECT_EQ(chunks * wire::kMaxChunkBytes, bytes);
  v1::ExchangeResponse answer;
  *answer.mutable_forward() = response;
  stream(0).Send(answer.SerializeAsString());
  EndStream(0, absl::OkStatus());
  EXPECT_EQ(Done().transport, TransportKind::kStream);
  EXPECT_EQ(Done().fallback, "");
}

TEST_F(RegionCallTest, AnExchangeMayHaveTensorsOfAllKinds) {
  const auto region = AddRegion(4096);
  ChunkedForward forward;
  forward.call.v = {DType::kF32, {1, 800, 1, 16}, forward.v.data()};
  const auto placed = AddRegion(1 << 20, false, std::string(16, 'p'));
  forward.call.k.data = placed->at(512);
  forward.call.lse.data = placed->at(512 << 10);
  ClientOptions options;
  options.max_message_bytes = 300'000;  // Q alone has more
  Reset(options);
  client_->AddRegion(region);
  client_->AddRegion(placed);
  Start(forward.call);
  ASSERT_EQ(transport_->streams.size(), 1);
  v1::ExchangeRequest message;
  ASSERT_TRUE(message.ParseFromString(stream(0).written[0]));
  const v1::ForwardRequest& request = message.header().forward();
  EXPECT_TRUE(request.q().has_streamed());
  ExpectAt(request.k().region(), *placed, 512);
  EXPECT_EQ(request.v().data(), forward.v);
  EXPECT_TRUE(request.o().has_streamed());
  ExpectAt(request.lse().region(), *placed, 512 << 10);

  stream(0).TakeWrite();
  stream(0).Send(Admitted(1));
  while (stream(0).writing) stream(0).TakeWrite();
  for (int i = 0; i < 3; ++i) stream(0).Send(ChunkOf(1, forward.o, i));
  v1::ExchangeResponse response;
  ASSERT_TRUE(response.ParseFromString(forward.Response()));
  SetPlace(*response.mutable_forward()->mutable_lse(), *placed, 512 << 10);
  stream(0).Send(response.SerializeAsString());
  EndStream(0, absl::OkStatus());
  EXPECT_EQ(Done().transport, TransportKind::kStream);
  EXPECT_EQ(forward.got_o, forward.o);
}

TEST_F(RegionCallTest, ACallKeepsItsRegionsUntilItHasEnded) {
  auto used = AddRegion(kCallBytes), other = AddRegion(kCallBytes);
  const std::weak_ptr<FakeRegion> held = used, free = other;
  const v1::ForwardResponse response = ResponseIn(*used);
  ForwardCall call = CallIn(*used);
  client_->ForwardAsync(call, {}, [&](const absl::StatusOr<Report>& report) {
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(held.lock(), nullptr);
  });
  client_->RemoveRegion(used);
  client_->RemoveRegion(other);
  used.reset();
  other.reset();
  EXPECT_EQ(free.lock(), nullptr);
  EXPECT_NE(held.lock(), nullptr);
  Answer(response);
  EXPECT_EQ(held.lock(), nullptr);
}

TEST_F(RegionCallTest, RetriesReferToTheSame) {
  const auto region = AddRegion(kCallBytes);
  Start(CallIn(*region));
  const std::string sent = transport_->at(0).Bytes();
  Refuse(absl::UnavailableError("gone"));
  executor_->Advance(absl::Seconds(1));
  ASSERT_EQ(transport_->size(), 2);
  EXPECT_EQ(transport_->at(1).Bytes(), sent);
  Answer(ResponseIn(*region));
  EXPECT_EQ(Done().attempts, 2);
  EXPECT_EQ(Done().transport, TransportKind::kRegion);
}

TEST_F(RegionCallTest, SynchronousCallsToo) {
  const auto region = AddRegion(kCallBytes);
  transport_->answer = [&](const FakeTransport::Attempt&) -> Transport::Result {
    return std::make_unique<FakeResponse>(
        ResponseIn(*region).SerializeAsString());
  };
  const auto report = client_->Forward(CallIn(*region), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->transport, TransportKind::kRegion);
}

}  // namespace
}  // namespace attnd::client
