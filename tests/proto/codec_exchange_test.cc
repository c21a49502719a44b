// What the codec makes of an Exchange's messages, and of what only they may
// hold.

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/codec.h"
#include "proto/wire/status.h"
#include "tests/proto/plain.h"
#include "tests/proto/routes.h"

namespace attnd::wire {
namespace {

namespace v1 = ::attn::v1;
using google::protobuf::Descriptor;
using testing::Bytes;
using testing::Concat;
using testing::Cut;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PathOf;
using testing::Route;
using testing::Routes;
using ::testing::SizeIs;
using testing::Varint;
using testing::Wrap;

constexpr int kChunk = v1::ExchangeRequest::kChunkFieldNumber;
static_assert(kChunk == v1::ExchangeResponse::kChunkFieldNumber);

template <typename Message>
struct Result {
  absl::Status status;
  Message header;
  std::vector<TensorData> data;
};

template <typename Message = v1::ExchangeRequest>
Result<Message> DecodeAs(absl::string_view bytes,
                         UnknownFields unknown = UnknownFields::kRefuse) {
  Result<Message> result;
  result.status = Decode(absl::MakeConstSpan(&bytes, 1), unknown, result.header,
                         result.data);
  return result;
}

// Expects that `status` is of `code` and that its one violation names `field`.
void ExpectNames(const absl::Status& status, absl::StatusCode code,
                 absl::string_view field) {
  EXPECT_EQ(status.code(), code) << status;
  const auto violations = FieldViolations(status);
  ASSERT_THAT(violations, SizeIs(1)) << status;
  EXPECT_EQ(violations[0].field, field) << status;
}

template <typename Message>
void ChunksAreTakenOutAndEncodedAgain() {
  std::string payload(100'000, '\0');
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i);
  Message header;
  header.mutable_chunk()->set_tensor(2);
  header.mutable_chunk()->set_offset(65536);
  Message plain = header;
  plain.mutable_chunk()->set_data(payload);

  const auto pieces = Encode(header, {{kChunk, {payload}}});
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  ASSERT_THAT(*pieces, SizeIs(1));
  EXPECT_EQ((*pieces)[0].borrowed.data(), payload.data());
  const std::string bytes = Concat(*pieces);
  EXPECT_EQ(bytes, plain.SerializeAsString());

  std::mt19937_64 random(3);
  for (int i = 0; i < 20; ++i) {
    const std::vector<absl::string_view> fragments = Cut(random, bytes);
    Message read;
    std::vector<TensorData> data;
    const absl::Status status =
        Decode(fragments, UnknownFields::kRefuse, read, data);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(read.SerializeAsString(), header.SerializeAsString());
    ASSERT_THAT(data, SizeIs(1));
    EXPECT_EQ(data[0].field, kChunk);
    EXPECT_EQ(data[0].bytes(), payload.size());
    // Views of the message, from the first byte of the data to its last.
    EXPECT_EQ(data[0].pieces.front().data(),
              bytes.data() + bytes.size() - payload.size());
    EXPECT_EQ(data[0].pieces.back().end(), &*bytes.begin() + bytes.size());

    const auto again = Encode(read, data);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(Concat(*again), bytes);
    EXPECT_EQ((*again)[0].borrowed.data(), data[0].pieces[0].data());
  }
}

TEST(CodecExchange, AChunkIsTakenOutAsViewsAndEncodedAgain) {
  ChunksAreTakenOutAndEncodedAgain<v1::ExchangeRequest>();
  ChunksAreTakenOutAndEncodedAgain<v1::ExchangeResponse>();
}

TEST(CodecExchange, AChunksFieldsComeInAnyOrder) {
  const std::string bytes =
      Bytes(kChunk, Bytes(15, "xyz") + Varint(2, 6) + Varint(1, 1));
  const auto read = DecodeAs(bytes);
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(read.header.chunk().tensor(), 1);
  EXPECT_EQ(read.header.chunk().offset(), 6);
  ASSERT_THAT(read.data, SizeIs(1));
  EXPECT_THAT(read.data[0].pieces, ElementsAre("xyz"));
}

TEST(CodecExchange, EmptyDataOfAChunkHasAnEntryWhereItIsSent) {
  // Plain protobuf leaves it out, and reads the same from both.
  const std::string absent = Bytes(kChunk, Varint(1, 1));
  const std::string empty = Bytes(kChunk, Varint(1, 1) + Bytes(15, ""));
  EXPECT_THAT(DecodeAs(absent).data, IsEmpty());
  const auto read = DecodeAs(empty);
  ASSERT_TRUE(read.status.ok()) << read.status;
  ASSERT_THAT(read.data, SizeIs(1));
  EXPECT_EQ(read.data[0].field, kChunk);
  EXPECT_THAT(read.data[0].pieces, IsEmpty());
  const auto again = Encode(read.header, read.data);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Concat(*again), empty);
}

TEST(CodecExchange, AChunkIsNoPartOfTheHeadersLimit) {
  const std::string large(kMaxHeaderBytes * 4, 'x');
  const std::string bytes = Bytes(kChunk, Bytes(15, large));
  const auto read = DecodeAs(bytes);
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(read.data[0].bytes(), large.size());
}

TEST(CodecExchange, DataOfTensorsInAHeaderStaysThere) {
  v1::ExchangeRequest request;
  request.mutable_header()->mutable_forward()->mutable_q()->set_data("queries");
  request.mutable_header()->mutable_forward()->mutable_k()->mutable_streamed();
  const auto sent = DecodeAs(request.SerializeAsString());
  ASSERT_TRUE(sent.status.ok()) << sent.status;
  EXPECT_THAT(sent.data, IsEmpty());
  EXPECT_EQ(sent.header.SerializeAsString(), request.SerializeAsString());

  v1::ExchangeResponse response;
  response.mutable_backward()->mutable_dq()->set_data("gradients");
  const auto got = DecodeAs<v1::ExchangeResponse>(response.SerializeAsString(),
                                                  UnknownFields::kIgnore);
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_THAT(got.data, IsEmpty());
  EXPECT_EQ(got.header.SerializeAsString(), response.SerializeAsString());

  // So it counts as the header's.
  request.mutable_header()->mutable_forward()->mutable_q()->set_data(
      std::string(kMaxHeaderBytes, 'q'));
  ExpectNames(DecodeAs(request.SerializeAsString()).status,
              absl::StatusCode::kInvalidArgument, "header.forward.q.data");
}

TEST(CodecExchange, ATensorIsStreamedOrHasData) {
  const std::string streamed = Bytes(14, ""), data = Bytes(15, "abcd");
  for (UnknownFields unknown :
       {UnknownFields::kRefuse, UnknownFields::kIgnore}) {
    for (const Route& route : Routes(*v1::ExchangeRequest::descriptor())) {
      if (route.empty() ||
          route.back()->message_type() != v1::Tensor::descriptor()) {
        continue;
      }
      const std::string path = PathOf(route);
      for (const auto& [bytes, member] : {std::pair{streamed + data, ".data"},
                                          {data + streamed, ".streamed"},
                                          {streamed + streamed, ".streamed"},
                                          {data + data, ".data"}}) {
        const absl::Status status =
            DecodeAs(Wrap(route, bytes), unknown).status;
        ExpectNames(status, absl::StatusCode::kInvalidArgument, path + member);
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr("more than one member of its oneof"));
      }
      EXPECT_TRUE(DecodeAs(Wrap(route, streamed)).status.ok()) << path;
      EXPECT_TRUE(DecodeAs(Wrap(route, data)).status.ok()) << path;
    }
  }
  // At the top data is taken out, and still counts.
  const std::string both = Bytes(1, data + streamed);
  ExpectNames(DecodeAs<v1::ForwardRequest>(both).status,
              absl::StatusCode::kInvalidArgument, "q.streamed");
}

TEST(CodecExchange, AMessageHasOnePart) {
  const std::string chunk = Bytes(kChunk, Bytes(15, "abcd"));
  ExpectNames(DecodeAs(chunk + Bytes(2, "")).status,
              absl::StatusCode::kInvalidArgument, "join");
  ExpectNames(DecodeAs(Bytes(1, "") + chunk).status,
              absl::StatusCode::kInvalidArgument, "chunk");
  ExpectNames(DecodeAs(chunk + chunk).status,
              absl::StatusCode::kInvalidArgument, "chunk");
}

TEST(CodecExchange, EncodeRefusesDataBesideAnotherMemberOfItsOneof) {
  const std::string bytes = "abcd";
  v1::ExchangeRequest request;
  request.mutable_join()->set_transfer("token");
  ExpectNames(Encode(request, {{kChunk, {bytes}}}).status(),
              absl::StatusCode::kInvalidArgument, "chunk");
  request.mutable_chunk();
  EXPECT_TRUE(Encode(request, {{kChunk, {bytes}}}).ok());
  request.mutable_chunk()->set_data("own");
  ExpectNames(Encode(request, {{kChunk, {bytes}}}).status(),
              absl::StatusCode::kInvalidArgument, "chunk");

  v1::ForwardRequest forward;
  forward.mutable_q()->mutable_streamed();
  ExpectNames(Encode(forward, {{1, {bytes}}}).status(),
              absl::StatusCode::kInvalidArgument, "q");
}

// What requests reserve, by hand: a number that is given back is missed here.
const std::map<const Descriptor*, std::vector<int>>& Reserved() {
  static const auto& reserved =
      *new std::map<const Descriptor*, std::vector<int>>{
          {v1::Tensor::descriptor(), {12}},
          {v1::OutputSpec::descriptor(),
           {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
          {v1::ForwardRequest::descriptor(), {9, 10}},
          {v1::BackwardRequest::descriptor(), {15, 16}},
          {v1::ExchangeHeader::descriptor(), {3}},
      };
  return reserved;
}

TEST(CodecExchange, ReservedNumbersAreRefusedByNumberAtEveryDepth) {
  int refused = 0;
  for (const google::protobuf::Message* type : testing::AllTypes()) {
    if (type->GetDescriptor()->name().find("Request") == std::string::npos) {
      continue;
    }
    for (const Route& route : Routes(*type->GetDescriptor())) {
      const Descriptor* inner =
          route.empty() ? type->GetDescriptor() : route.back()->message_type();
      const auto found = Reserved().find(inner);
      if (found == Reserved().end()) {
        EXPECT_EQ(inner->reserved_range_count(), 0) << inner->full_name();
        continue;
      }
      for (int number : found->second) {
        EXPECT_TRUE(inner->IsReservedNumber(number))
            << inner->full_name() << " " << number;
        const std::string path = PathOf(route);
        const std::string bytes = Wrap(route, Varint(number, 1));
        std::unique_ptr<google::protobuf::Message> header(type->New());
        std::vector<TensorData> data;
        ExpectNames(Decode({absl::string_view(bytes)}, UnknownFields::kRefuse,
                           *header, data),
                    absl::StatusCode::kUnimplemented,
                    absl::StrCat(path, path.empty() ? "" : ".", number));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace attnd::wire
