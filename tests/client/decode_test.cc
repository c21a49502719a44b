// Answers as they come in.

#include <memory>
#include <string>
#include <utility>

#include "attn/v1/attention.pb.h"
#include "tests/client/core_testing.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using CoreDecodeTest = CoreTest;

TEST_F(CoreDecodeTest, ForwardCopiesOutputsAndReport) {
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
  EXPECT_FALSE(report->plan.has_value());
}

TEST_F(CoreDecodeTest, ATeamsReportIsThere) {
  v1::ForwardResponse response = GoodResponse();
  v1::PlanReport& plan = *response.mutable_report()->mutable_plan();
  plan.set_why("K/V heads divide");
  for (const auto& [name, busy] : {std::pair{"cuda:0", 30}, {"cuda:1", 20}}) {
    v1::PlanDevice& device = *plan.add_devices();
    device.set_device(name);
    device.set_busy_ns(busy);
  }
  plan.set_predicted_ns(25);
  // One that this client does not know is none of those that it does.
  for (const auto& [sent, got] :
       {std::pair{v1::PLAN_ONE_DEVICE, Plan::kOneDevice},
        {v1::PLAN_HEADS, Plan::kHeads},
        {v1::PLAN_GATHER, Plan::kGather},
        {v1::PLAN_RING, Plan::kRing},
        {v1::PLAN_STRIPED, Plan::kStriped},
        {v1::PLAN_ZIGZAG, Plan::kZigzag},
        {v1::PLAN_KV, Plan::kKv},
        {static_cast<v1::Plan>(77), Plan::kAuto}}) {
    plan.set_plan(sent);
    transport_->answer =
        [&](const FakeTransport::Attempt&) -> Transport::Result {
      return std::make_unique<FakeResponse>(response.SerializeAsString());
    };
    const auto report = client_->Forward(Call(), {});
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->plan.has_value());
    EXPECT_EQ(report->plan->plan, got);
    EXPECT_EQ(report->plan->why, "K/V heads divide");
    ASSERT_EQ(report->plan->devices.size(), 2);
    EXPECT_EQ(report->plan->devices[0].device, "cuda:0");
    EXPECT_EQ(report->plan->devices[0].busy, absl::Nanoseconds(30));
    EXPECT_EQ(report->plan->devices[1].busy, absl::Nanoseconds(20));
    EXPECT_EQ(report->plan->predicted, absl::Nanoseconds(25));
  }
}

TEST_F(CoreDecodeTest, AResponseThatDoesNotFitNamesItsField) {
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

TEST_F(CoreDecodeTest, AGarbledResponseIsInternal) {
  v1::ForwardResponse response = GoodResponse();
  response.clear_report();  // without it, a response is whole
  const std::string good = response.SerializeAsString();
  for (size_t size = 1; size < good.size(); ++size) {
    const absl::Status status = ForwardWith(good.substr(0, size));
    EXPECT_TRUE(absl::IsInternal(status)) << size << " " << status;
  }
  EXPECT_TRUE(absl::IsInternal(ForwardWith("")));
}

TEST_F(CoreDecodeTest, UnknownResponseFieldsAreIgnored) {
  // Field 1000, a varint.
  const std::string more("\xc0\x3e\x05", 3);
  EXPECT_TRUE(ForwardWith(GoodResponse().SerializeAsString() + more).ok());
}

TEST_F(CoreDecodeTest, ServerInfoIsReadWhole) {
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
  response.mutable_limits()->set_max_request_sequences(8);
  response.mutable_limits()->set_max_transfer_streams(9);
  response.mutable_limits()->set_region_bytes(11);
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
  EXPECT_EQ(info->max_request_sequences, 8);
  EXPECT_EQ(info->max_transfer_streams, 9);
  EXPECT_EQ(info->region_bytes, 11);
  EXPECT_EQ(info->preferred_chunk_bytes, 7);
}

}  // namespace
}  // namespace attnd::client
