#include "client/attnctl/placed_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/attnctl/print.h"
#include "nlohmann/json.hpp"
#include "tests/client/core_testing.h"
#include "tests/client/region_server.h"
#include "tests/hang_limit.h"

namespace attnd::client {
namespace {

using ::testing::HasSubstr;

class PlacedRequestTest : public CoreTest {
 protected:
  PlacedRequestTest() {
    flags_.transport = TransportChoice::kRegion;
    flags_.region_socket = server_.path();
    // CoreTest's call, with results in the request's own memory.
    request_.outputs.push_back(
        {"o", "", "", PoisonedTensor(DType::kF32, {2, 3, 4, 6}), {}});
    request_.outputs.push_back(
        {"lse", "", "", PoisonedTensor(DType::kF32, {2, 4, 3}), {}});
    ForwardCall call = Call();
    call.o = request_.outputs[0].tensor.mutable_view();
    call.lse = request_.outputs[1].tensor.mutable_view();
    request_.call = call;
  }

  RegionServer server_{GrantHostMemory};
  TransportFlags flags_;
  Request request_;
};

TEST_F(PlacedRequestTest, TravelsByReferenceThereAndBack) {
  auto placed =
      PlacedRequest::Place(flags_, testing::kHangLimit, request_, *client_);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_GT(request_.leased_bytes, 0);
  EXPECT_FALSE(request_.on_device);
  const auto& call = std::get<ForwardCall>(request_.call);
  EXPECT_EQ(std::memcmp(call.k.data, k_.data(), k_.size()), 0);
  EXPECT_EQ(call.bias.data, nullptr);
  EXPECT_EQ(std::string(static_cast<char*>(call.o.data), 4), "\xff\xff\xff\xff")
      << "what is left out would not show";

  const attn::v1::ForwardResponse good = GoodResponse();
  transport_->answer =
      [&](const FakeTransport::Attempt& attempt) -> Transport::Result {
    attn::v1::ForwardRequest request;
    EXPECT_TRUE(request.ParseFromString(attempt.Bytes()));
    EXPECT_TRUE(request.q().has_region());
    EXPECT_TRUE(request.o().has_region());
    std::memcpy(call.o.data, good.o().data().data(), good.o().data().size());
    std::memcpy(call.lse.data, good.lse().data().data(),
                good.lse().data().size());
    attn::v1::ForwardResponse response = good;
    *response.mutable_o()->mutable_region() = request.o().region();
    *response.mutable_lse()->mutable_region() = request.lse().region();
    return std::make_unique<FakeResponse>(response.SerializeAsString());
  };
  const auto report = Send(*client_, request_, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->transport, TransportKind::kRegion);
  ASSERT_TRUE((*placed)->CopyOut().ok());
  const auto text = [](const HostTensor& tensor) {
    return std::string(tensor.data.begin(), tensor.data.end());
  };
  EXPECT_EQ(text(request_.outputs[0].tensor), good.o().data());
  EXPECT_EQ(text(request_.outputs[1].tensor), good.lse().data());

  EXPECT_THAT(ResultText(request_, *report, 0), HasSubstr("of host memory"));
  const auto json = nlohmann::json::parse(ResultJson(request_, *report, 0));
  EXPECT_EQ(json["transport"], "region");
  EXPECT_EQ(json["region"]["memory"], "host");
  EXPECT_EQ(json["region"]["bytes"], request_.leased_bytes);
  EXPECT_EQ(json["fallback"], "");
}

TEST_F(PlacedRequestTest, WithoutAServerItFails) {
  flags_.region_socket = "/nowhere/at/all";
  const absl::Status status =
      PlacedRequest::Place(flags_, testing::kHangLimit, request_, *client_)
          .status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST(TransportFlagsTest, ARegionNeedsASocket) {
  for (const auto& [name, choice] : TransportChoices()) {
    TransportFlags flags;
    flags.transport = choice;
    const bool needed = name == "region" || name == "device_region";
    EXPECT_EQ(flags.in_region(), needed);
    EXPECT_EQ(flags.Validate().ok(), !needed) << name;
    flags.region_socket = "/run/attnd/region";
    EXPECT_TRUE(flags.Validate().ok()) << name;
  }
}

TEST(PrintTest, SaysWhyARegionWasNotUsed) {
  Report report;
  report.fallback = "q: the server lacks regions\x1b";
  const Request request;
  const std::string text = ResultText(request, report, 0);
  EXPECT_THAT(text, HasSubstr("q: the server lacks regions"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  const auto json = nlohmann::json::parse(ResultJson(request, report, 0));
  EXPECT_EQ(json["fallback"], report.fallback);
  EXPECT_TRUE(json["region"].is_null());
}

TEST(PrintTest, InfoHasTheLargestRegion) {
  ServerInfo info;
  info.features = {"regions", "regions.cuda"};
  EXPECT_THAT(InfoText(info), HasSubstr("none of host memory"));
  EXPECT_THAT(InfoText(info), HasSubstr("regions, regions.cuda"));
  info.region_bytes = 123456;
  EXPECT_THAT(InfoText(info), HasSubstr("123456 bytes at most"));
  EXPECT_EQ(nlohmann::json::parse(InfoJson(info))["region_bytes"], 123456);
}

}  // namespace
}  // namespace attnd::client
