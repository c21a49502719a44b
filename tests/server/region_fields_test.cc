// Which slices of regions a request may name.

#include "server/front/region_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "server/front/decode.h"
#include "server/front/encode.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/test_regions.h"
#include "tests/server/field_uses.h"

namespace attnd::server {
namespace {

namespace pb = ::attn::v1;
using ::testing::HasSubstr;
using testing::Refusal;

constexpr char kId[] = "0123456789abcdef";
constexpr char kOther[] = "fedcba9876543210";

class RegionFieldsTest : public ::testing::Test {
 public:
  RegionFieldsTest() {
    regions_.Add(TestRegion::OfHost(kId, 4096));
    // [1, 4, 1, 8] of f32: 128 bytes each.
    for (pb::Tensor* tensor :
         {request_.mutable_q(), request_.mutable_k(), request_.mutable_v()}) {
      tensor->set_dtype(pb::DATA_TYPE_F32);
      for (int64_t dim : {1, 4, 1, 8}) tensor->add_shape(dim);
      tensor->set_data(std::string(128, 'x'));
    }
    request_.mutable_lse()->set_want(false);
  }

  static void Set(pb::RegionSlice& slice, int64_t offset,
                  const std::string& id = kId) {
    slice.set_region(id);
    slice.set_offset(offset);
  }
  absl::Status Decode(Work& work) const {
    const std::string bytes = request_.SerializeAsString();
    return DecodeWork(Op::kForward, {bytes}, &regions_, work);
  }
  std::string Refused() const {
    Work work;
    return Refusal(Decode(work));
  }

  TestRegions regions_;
  pb::ForwardRequest request_;
};

TEST_F(RegionFieldsTest, InputsAndResultsMayLieInOne) {
  Set(*request_.mutable_q()->mutable_region(), 256);
  Set(*request_.mutable_v()->mutable_region(), 4096 - 256);
  Set(*request_.mutable_o()->mutable_region(), 512);
  Work work;
  ASSERT_EQ(Decode(work), absl::OkStatus());
  const auto& q = std::get<RegionBytes>(work.inputs[TensorId::kQ]);
  EXPECT_EQ(q.region->id(), kId);
  EXPECT_EQ(q.offset, 256);
  EXPECT_TRUE(std::holds_alternative<HostPieces>(work.inputs[TensorId::kK]));
  EXPECT_EQ(std::get<RegionBytes>(work.inputs[TensorId::kV]).offset, 3840);
  EXPECT_EQ(work.placed[TensorId::kO].region->id(), kId);
  EXPECT_EQ(work.placed[TensorId::kO].offset, 512);
  EXPECT_EQ(work.placed[TensorId::kLse].region, nullptr);
  EXPECT_EQ(work.devices, ~uint64_t{0});
}

TEST_F(RegionFieldsTest, AnUnknownRegionIsNotFoundWhateverItsLength) {
  for (const std::string& id : {std::string(kOther), std::string(),
                                std::string(kId, 15), std::string(1000, 'a')}) {
    Set(*request_.mutable_k()->mutable_region(), 0, id);
    EXPECT_EQ(Refused(), "NOT_FOUND k.region");
  }
  request_.mutable_k()->set_data(std::string(128, 'x'));
  Set(*request_.mutable_o()->mutable_region(), 0, kOther);
  EXPECT_EQ(Refused(), "NOT_FOUND o.region");
}

// What a thread has read before it does not read again: it is the same.
TEST_F(RegionFieldsTest, ARequestThatComesAgainFindsItsRegionsAnew) {
  for (pb::Tensor* tensor :
       {request_.mutable_q(), request_.mutable_k(), request_.mutable_v()}) {
    Set(*tensor->mutable_region(), 256, "of this test");
  }
  Set(*request_.mutable_o()->mutable_region(), 512, "of this test");
  request_.mutable_options()->set_priority(pb::PRIORITY_HIGH);
  const auto refused = [this] { return Refused(); };
  EXPECT_EQ(refused(), "NOT_FOUND q.region");
  for (int lease = 0; lease < 3; ++lease) {
    TestRegions regions;
    regions.Add(TestRegion::OfHost("of this test", 4096));
    for (int call = 0; call < 4; ++call) {
      const std::string bytes = request_.SerializeAsString();
      Work work;
      ASSERT_EQ(DecodeWork(Op::kForward, {bytes}, &regions, work),
                absl::OkStatus());
      EXPECT_EQ(work.request->sizes().q_len, 4);
      EXPECT_EQ(work.priority, Priority::kHigh);
      const auto& q = std::get<RegionBytes>(work.inputs[TensorId::kQ]);
      EXPECT_EQ(q.region, regions.Find("of this test"));
      EXPECT_EQ(q.offset, 256);
      EXPECT_EQ(work.placed[TensorId::kO].region, q.region);
      EXPECT_EQ(work.placed[TensorId::kO].offset, 512);
    }
    EXPECT_EQ(refused(), "NOT_FOUND q.region");
  }
  // And is checked against them anew.
  TestRegions smaller;
  smaller.Add(TestRegion::OfHost("of this test", 512));
  const std::string bytes = request_.SerializeAsString();
  Work work;
  EXPECT_EQ(Refusal(DecodeWork(Op::kForward, {bytes}, &smaller, work)),
            "INVALID_ARGUMENT o.region");
}

TEST_F(RegionFieldsTest, WithoutRegionsNoneIsFound) {
  Set(*request_.mutable_q()->mutable_region(), 0);
  const std::string bytes = request_.SerializeAsString();
  Work work;
  EXPECT_EQ(Refusal(DecodeWork(Op::kForward, {bytes}, nullptr, work)),
            "NOT_FOUND q.region");
}

TEST_F(RegionFieldsTest, NothingReachesBeyondItsRegion) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  pb::RegionSlice& slice = *request_.mutable_q()->mutable_region();
  for (int64_t offset :
       {int64_t{4096}, int64_t{-256}, kMost - 255, -kMost - 1}) {
    Set(slice, offset);
    EXPECT_EQ(Refused(), "INVALID_ARGUMENT q.region") << offset;
  }
  for (int64_t offset : {int64_t{1}, int64_t{128}, int64_t{-1}, kMost}) {
    Set(slice, offset);
    EXPECT_EQ(Refused(), "INVALID_ARGUMENT q.region.offset") << offset;
  }
  request_.mutable_q()->set_data(std::string(128, 'x'));
  Set(*request_.mutable_o()->mutable_region(), 4096);
  EXPECT_EQ(Refused(), "INVALID_ARGUMENT o.region");
}

TEST_F(RegionFieldsTest, ATensorWithoutElementsFitsAtTheEnd) {
  request_.mutable_q()->set_shape(1, 0);
  Set(*request_.mutable_q()->mutable_region(), 4096);
  Set(*request_.mutable_o()->mutable_region(), 4096);
  EXPECT_EQ(Refused(), "OK");
}

TEST_F(RegionFieldsTest, AResultOverlapsNothing) {
  request_.mutable_q()->set_shape(1, 12);  // 384 bytes
  Set(*request_.mutable_q()->mutable_region(), 0);
  Set(*request_.mutable_k()->mutable_region(), 0);  // inputs may
  EXPECT_EQ(Refused(), "OK");
  pb::RegionSlice& o = *request_.mutable_o()->mutable_region();
  Set(o, 256);
  EXPECT_EQ(Refused(), "INVALID_ARGUMENT o.region");
  Set(o, 512);
  EXPECT_EQ(Refused(), "OK");
  request_.mutable_lse()->set_want(true);
  Set(*request_.mutable_lse()->mutable_region(), 768);
  EXPECT_EQ(Refused(), "INVALID_ARGUMENT lse.region");
  Set(*request_.mutable_lse()->mutable_region(), 1024);
  EXPECT_EQ(Refused(), "OK");
  // Not wanted, so nowhere.
  Set(o, 0);
  request_.mutable_o()->set_want(false);
  EXPECT_EQ(Refused(), "OK");
}

TEST_F(RegionFieldsTest, ARequestRunsWhereItsRegionsAre) {
  IdentityBackend backend;
  regions_.Add(
      TestRegion::OfDevice("first", *backend.NewBuffer(4096), 4096, 1));
  regions_.Add(
      TestRegion::OfDevice("second", *backend.NewBuffer(4096), 4096, 3));
  Set(*request_.mutable_q()->mutable_region(), 0, "first");
  Set(*request_.mutable_k()->mutable_region(), 0);
  Set(*request_.mutable_o()->mutable_region(), 256, "first");
  Work work;
  ASSERT_EQ(Decode(work), absl::OkStatus());
  EXPECT_EQ(work.devices, uint64_t{1} << 1);
  Set(*request_.mutable_v()->mutable_region(), 0, "second");
  EXPECT_EQ(Refused(), "INVALID_ARGUMENT v.region");
}

TEST_F(RegionFieldsTest, BytesOfDataBesideARegionAreRefused) {
  Set(*request_.mutable_q()->mutable_region(), 0);
  // Field 15, as data is encoded: protobuf itself would let the last one win.
  std::string q = request_.q().SerializeAsString();
  q += std::string("\x7a\x80\x01", 3) + std::string(128, 'x');
  pb::ForwardRequest rest = request_;
  rest.clear_q();
  const std::string bytes = std::string("\x0a", 1) +
                            std::string(1, static_cast<char>(q.size() | 0x80)) +
                            std::string(1, static_cast<char>(q.size() >> 7)) +
                            q + rest.SerializeAsString();
  Work work;
  const absl::Status status =
      DecodeWork(Op::kForward, {bytes}, &regions_, work);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("oneof"));
}

TEST_F(RegionFieldsTest, TheResponseSaysWhereResultsAre) {
  Set(*request_.mutable_o()->mutable_region(), 512);
  request_.mutable_lse()->set_want(true);
  Work work;
  ASSERT_EQ(Decode(work), absl::OkStatus());
  IdentityBackend backend;
  const auto pool = OutputPool::Create(backend.host_memory(), 0);
  WorkResult result;
  result.placed = {{TensorId::kO, kId, work.placed[TensorId::kO].offset}};
  result.outputs[TensorId::kLse] = pool->Allocate(16, nullptr);
  const auto pieces = EncodeResult(*work.request, result);
  ASSERT_EQ(pieces.status(), absl::OkStatus());
  std::string bytes;
  for (const wire::Piece& piece : *pieces) {
    absl::StrAppend(&bytes, piece.owned, piece.borrowed);
  }
  pb::ForwardResponse response;
  ASSERT_TRUE(response.ParseFromString(bytes));
  EXPECT_EQ(response.o().region().region(), kId);
  EXPECT_EQ(response.o().region().offset(), 512);
  EXPECT_EQ(response.o().shape_size(), 4);
  EXPECT_EQ(response.lse().data().size(), 16);
}

TEST_F(RegionFieldsTest, WhatIsInARegionNeedNotFitIntoTheResponse) {
  Set(*request_.mutable_o()->mutable_region(), 0);
  Work work;
  ASSERT_EQ(Decode(work), absl::OkStatus());
  constexpr int64_t kLimit = 3072;
  EXPECT_EQ(CheckResponseFits(*work.request, 2600).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckResponseFits(*work.request, kLimit, work.placed),
            absl::OkStatus());
}

}  // namespace
}  // namespace attnd::server
