#include "proto/wire/codec.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"
#include "proto/wire/wire_format.h"
#include "tests/proto/plain.h"
#include "tests/proto/routes.h"

namespace attnd::wire {
namespace {

namespace v1 = ::attn::v1;
using testing::AllTypes;
using testing::Bytes;
using testing::CheckAgainstGenerated;
using testing::Concat;
using ::testing::ElementsAre;
using testing::FillRandom;
using ::testing::HasSubstr;
using testing::JoinData;
using ::testing::SizeIs;
using testing::SplitData;
using testing::Varint;

struct Result {
  absl::Status status;
  v1::ForwardRequest header;
  std::vector<TensorData> data;
};

Result DecodeForward(absl::string_view bytes,
                     UnknownFields unknown = UnknownFields::kRefuse) {
  Result result;
  result.status = Decode(absl::MakeConstSpan(&bytes, 1), unknown, result.header,
                         result.data);
  return result;
}

// `field` once, holding zero.
std::string Zero(const google::protobuf::FieldDescriptor& field) {
  using Field = google::protobuf::FieldDescriptor;
  WireType type = WireType::kVarint;
  int bytes = 1;
  switch (field.type()) {
    case Field::TYPE_FLOAT:
    case Field::TYPE_FIXED32:
    case Field::TYPE_SFIXED32:
      type = WireType::kFixed32;
      bytes = 4;
      break;
    case Field::TYPE_DOUBLE:
    case Field::TYPE_FIXED64:
    case Field::TYPE_SFIXED64:
      type = WireType::kFixed64;
      bytes = 8;
      break;
    case Field::TYPE_STRING:
    case Field::TYPE_BYTES:
    case Field::TYPE_MESSAGE:
      type = WireType::kBytes;
      break;
    default:
      break;
  }
  std::string out;
  AppendTag({field.number(), type}, out);
  out.append(bytes, '\0');
  return out;
}

// The status of refusing `bytes`, whose one violation must name `field`.
absl::Status RefusedNaming(absl::string_view field, absl::string_view bytes) {
  absl::Status status = DecodeForward(bytes).status;
  const auto violations = FieldViolations(status);
  EXPECT_THAT(violations, SizeIs(1)) << status;
  if (!violations.empty()) {
    EXPECT_EQ(violations[0].field, field) << status;
  }
  return status;
}

void ExpectInvalid(absl::string_view field, absl::string_view bytes) {
  EXPECT_EQ(RefusedNaming(field, bytes).code(),
            absl::StatusCode::kInvalidArgument);
}

v1::ForwardRequest SmallRequest() {
  v1::ForwardRequest request;
  for (v1::Tensor* t :
       {request.mutable_q(), request.mutable_k(), request.mutable_v()}) {
    t->set_dtype(v1::DATA_TYPE_F32);
    for (int dim : {1, 1, 1, 64}) t->add_shape(dim);
    t->set_data(std::string(256, 'x'));
  }
  return request;
}

TEST(Codec, RoundTripsEveryMessage) {
  std::mt19937_64 random(1);
  for (const auto* type : AllTypes()) {
    for (int i = 0; i < 500; ++i) {
      std::unique_ptr<google::protobuf::Message> plain(type->New());
      FillRandom(random, *plain);
      bool accepted = false;
      const absl::Status status = CheckAgainstGenerated(
          *type, plain->SerializeAsString(), random, &accepted);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(accepted) << plain->ShortDebugString();

      const auto split = SplitData(*plain);
      const auto pieces = Encode(*split.header, split.data);
      ASSERT_TRUE(pieces.ok()) << pieces.status();
      std::unique_ptr<google::protobuf::Message> read(type->New());
      ASSERT_TRUE(read->ParseFromString(Concat(*pieces)));
      ASSERT_EQ(read->SerializeAsString(), plain->SerializeAsString());
    }
  }
}

TEST(Codec, LeavesTensorBytesWhereTheyAre) {
  const std::string q(1000, 'q'), k1(10, 'k'), k2(20, 'K');
  v1::ForwardRequest header;
  header.mutable_q()->add_shape(1000);
  header.mutable_k()->add_shape(30);
  header.mutable_v()->set_dtype(v1::DATA_TYPE_BF16);
  const auto pieces =
      Encode(header, {{1, {q}}, {2, {k1, k2}}, {3, {}}, {4, {q}}});
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  std::vector<const char*> borrowed;
  for (const Piece& piece : *pieces) {
    if (!piece.borrowed.empty()) borrowed.push_back(piece.borrowed.data());
  }
  EXPECT_THAT(borrowed, ElementsAre(q.data(), k1.data(), k2.data(), q.data()));

  const std::string bytes = Concat(*pieces);
  const Result read = DecodeForward(bytes);
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(read.header.SerializeAsString(), [&] {
    v1::ForwardRequest with_bias = header;
    with_bias.mutable_bias();
    return with_bias.SerializeAsString();
  }());
  ASSERT_THAT(read.data, SizeIs(4));
  EXPECT_EQ(read.data[0].bytes(), 1000);
  EXPECT_GE(read.data[0].pieces[0].data(), bytes.data());
  EXPECT_LT(read.data[0].pieces[0].data(), bytes.data() + bytes.size());
  EXPECT_EQ(read.data[2].field, 3);
  EXPECT_TRUE(read.data[2].pieces.empty());
}

TEST(Codec, AcceptsAnyFieldOrder) {
  std::mt19937_64 random(2);
  const v1::ForwardRequest plain = SmallRequest();
  std::vector<std::string> fields;
  for (int number : {1, 2, 3}) {
    const v1::Tensor& t = number == 1   ? plain.q()
                          : number == 2 ? plain.k()
                                        : plain.v();
    // Data first, then the shape unpacked, then the type.
    std::string body = Bytes(15, t.data());
    for (int64_t dim : t.shape()) body += Varint(2, dim);
    body += Varint(1, t.dtype());
    fields.push_back(Bytes(number, body));
  }
  for (int i = 0; i < 20; ++i) {
    std::shuffle(fields.begin(), fields.end(), random);
    const std::string bytes = fields[0] + fields[1] + fields[2];
    const Result read = DecodeForward(bytes);
    ASSERT_TRUE(read.status.ok()) << read.status;
    EXPECT_EQ(JoinData(read.header, read.data)->SerializeAsString(),
              plain.SerializeAsString());
  }
}

TEST(Codec, AcceptsPackedAndUnpackedMixed) {
  const std::string q = Varint(2, 7) + Bytes(2, "\x01\x02") + Varint(2, 9);
  const Result read = DecodeForward(Bytes(1, q));
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_THAT(read.header.q().shape(), ElementsAre(7, 1, 2, 9));
}

TEST(Codec, FragmentsAtEveryByteChangeNothing) {
  const v1::ForwardRequest plain = SmallRequest();
  const std::string bytes = plain.SerializeAsString();
  std::vector<absl::string_view> ones;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const absl::string_view all = bytes;
    v1::ForwardRequest header;
    std::vector<TensorData> data;
    const std::vector<absl::string_view> two = {all.substr(0, i), "",
                                                all.substr(i)};
    ASSERT_TRUE(Decode(two, UnknownFields::kRefuse, header, data).ok()) << i;
    ASSERT_EQ(JoinData(header, data)->SerializeAsString(), bytes) << i;
    ones.push_back(all.substr(i, 1));
  }
  v1::ForwardRequest header;
  std::vector<TensorData> data;
  ASSERT_TRUE(Decode(ones, UnknownFields::kRefuse, header, data).ok());
  EXPECT_EQ(JoinData(header, data)->SerializeAsString(), bytes);
  EXPECT_THAT(data[0].pieces, SizeIs(256));
}

TEST(Codec, AnEmptyMessageIsOne) {
  v1::ForwardRequest header;
  std::vector<TensorData> data;
  EXPECT_TRUE(Decode({}, UnknownFields::kRefuse, header, data).ok());
  const auto pieces = Encode(header, {});
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(Concat(*pieces), "");
}

TEST(Codec, UnknownFieldsAreRefusedByNumberAndPath) {
  const std::string mask = Bytes(5, Bytes(4, Varint(9, 1)));
  const absl::Status deep = RefusedNaming("attention.mask.9", mask);
  EXPECT_EQ(deep.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(deep.message()), HasSubstr("field 9"));
  EXPECT_THAT(std::string(deep.message()), HasSubstr("attention.mask"));
  EXPECT_EQ(RefusedNaming("77", Bytes(77, "x")).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(RefusedNaming("q.3", Bytes(1, Varint(3, 1))).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(RefusedNaming("536870911", Varint(536870911, 1)).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(Codec, UnknownFieldsAreSkippedInResponses) {
  const std::string fixed32 = std::string("\x95\x01", 2) + "abcd";  // 18
  const std::string fixed64 = std::string("\x91\x01", 2) + "abcdefgh";
  const std::string q = Varint(9, 1) + Varint(2, 5) + Bytes(3, "xyz");
  const Result read =
      DecodeForward(fixed32 + Bytes(1, q) + fixed64 + Bytes(1000, "long"),
                    UnknownFields::kIgnore);
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_THAT(read.header.q().shape(), ElementsAre(5));
  EXPECT_EQ(read.header.ByteSizeLong(), 2 + 3);
}

TEST(Codec, SingularFieldsComeOnce) {
  ExpectInvalid("q", Bytes(1, "") + Bytes(1, ""));
  ExpectInvalid("q.dtype", Bytes(1, Varint(1, 1) + Varint(1, 1)));
  ExpectInvalid("q.data", Bytes(1, Bytes(15, "a") + Bytes(15, "")));
  ExpectInvalid("attention.mask.causal",
                Bytes(5, Bytes(4, Varint(1, 1) + Varint(1, 0))));
  EXPECT_FALSE(
      DecodeForward(Bytes(1, "") + Bytes(1, ""), UnknownFields::kIgnore)
          .status.ok());
}

TEST(Codec, OneMemberOfAOneofComesOnce) {
  const auto& type = testing::EveryType();
  const auto* oneof = type.GetDescriptor()->oneof_decl(0);
  ASSERT_GT(oneof->field_count(), 5);
  for (int i = 0; i < oneof->field_count(); ++i) {
    for (int j = 0; j < oneof->field_count(); ++j) {
      const std::string bytes = Zero(*oneof->field(i)) + Zero(*oneof->field(j));
      const absl::string_view fragment = bytes;
      std::unique_ptr<google::protobuf::Message> header(type.New());
      std::vector<TensorData> data;
      const absl::Status status =
          Decode({fragment}, UnknownFields::kRefuse, *header, data);
      ASSERT_THAT(FieldViolations(status), SizeIs(1)) << status;
      EXPECT_EQ(FieldViolations(status)[0].field, oneof->field(j)->name());
    }
  }
}

TEST(Codec, AcceptsEveryRepeatedScalarPackedAndNot) {
  std::mt19937_64 random(8);
  const auto& type = testing::EveryType();
  int packable = 0;
  for (int i = 0; i < type.GetDescriptor()->field_count(); ++i) {
    const auto& field = *type.GetDescriptor()->field(i);
    if (!field.is_packable()) continue;
    ++packable;
    // Eight zero bytes are elements of any type; three, or 0x80, are not.
    const std::string eight(8, '\0');
    bool accepted = false;
    absl::Status status = CheckAgainstGenerated(
        type, Bytes(field.number(), eight) + Zero(field), random, &accepted);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(accepted) << field.DebugString();
    status = CheckAgainstGenerated(type, Bytes(field.number(), "\x80\x80\x80"),
                                   random, &accepted);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_FALSE(accepted) << field.DebugString();
  }
  EXPECT_EQ(packable, 2 * 14);
}

TEST(Codec, UnknownEnumValuesAreRefusedInRequestsOnly) {
  ExpectInvalid("q.dtype", Bytes(1, Varint(1, 4)));
  ExpectInvalid("q.dtype", Bytes(1, Varint(1, ~uint64_t{0})));
  ExpectInvalid("options.algorithm", Bytes(8, Varint(1, 5)));
  ExpectInvalid("options.plan", Bytes(8, Varint(4, 9)));
  ExpectInvalid("attention.layout", Bytes(5, Varint(1, 4)));
  const Result read =
      DecodeForward(Bytes(1, Varint(1, 4)), UnknownFields::kIgnore);
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(static_cast<int>(read.header.q().dtype()), 4);
}

TEST(Codec, WrongWireTypesAreRefused) {
  ExpectInvalid("q", Varint(1, 1));
  ExpectInvalid("q.dtype", Bytes(1, Bytes(1, "\x01")));
  ExpectInvalid("q.data", Bytes(1, Varint(15, 1)));
  ExpectInvalid("attention.scale", Bytes(5, Varint(2, 1)));
  ExpectInvalid("q", "\x0b\x0c");  // a group in its place
  ExpectInvalid("q", "\x0c");      // a group's end
  ExpectInvalid("q.shape", Bytes(1,
                                 "\x15"
                                 "abcd"));  // fixed32 for a varint
  for (const char* bytes : {"\x0e", "\x0f", "\x00", "\x07"}) {
    EXPECT_EQ(DecodeForward(absl::string_view(bytes, 1)).status.code(),
              absl::StatusCode::kInvalidArgument);
  }
  // A group of an unknown number, skipped by nobody.
  EXPECT_EQ(
      DecodeForward("\x93\x01\x94\x01", UnknownFields::kIgnore).status.code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(Codec, MalformedVarintsAreRefused) {
  const std::string ten(9, '\xff');
  ExpectInvalid("q.dtype", Bytes(1, "\x08" + ten + "\xff\x01"));  // 11 bytes
  ExpectInvalid("q.dtype", Bytes(1, "\x08" + ten + "\x02"));      // 65 bits
  ExpectInvalid("q.shape", Bytes(1, Bytes(2, "\x80")));
  ExpectInvalid("q", "\x0a\xff\xff\xff\xff\x7f");  // a length of 2^35 - 1
  ExpectInvalid("q", "\x0a\xff\xff\xff\xff\x07");  // of 2^31 - 1, not there
  EXPECT_EQ(DecodeForward("\x8a\x80\x80\x80\x80\x00").status.code(),
            absl::StatusCode::kInvalidArgument);  // a tag of six bytes
}

TEST(Codec, TruncationAnywhereIsRefused) {
  const v1::ForwardRequest plain = SmallRequest();
  const std::string bytes = plain.SerializeAsString();
  const size_t field = bytes.size() / 3;  // the three tensors are alike
  for (size_t i = 1; i < bytes.size(); ++i) {
    EXPECT_EQ(DecodeForward(absl::string_view(bytes).substr(0, i)).status.ok(),
              i % field == 0)
        << i;
  }
}

TEST(Codec, AHeaderIsRefusedBeforeItGrows) {
  // Packed, unpacked, nested: all bounded. Data is not part of it.
  const std::string large(kMaxHeaderBytes, '\x01');
  ExpectInvalid("q.shape", Bytes(1, Bytes(2, large)));
  std::string unpacked;
  while (unpacked.size() <= kMaxHeaderBytes) unpacked += Varint(5, 1);
  ExpectInvalid("attention.q_lens", Bytes(5, unpacked));
  EXPECT_TRUE(DecodeForward(Bytes(1, Bytes(15, large))).status.ok());
  const std::string fits(kMaxHeaderBytes - 64, '\x01');
  EXPECT_TRUE(DecodeForward(Bytes(1, Bytes(2, fits))).status.ok());

  std::string devices;
  while (devices.size() < kMaxHeaderBytes) devices += Bytes(4, "");
  v1::GetServerInfoResponse info;
  std::vector<TensorData> data;
  const absl::string_view fragment = devices;
  EXPECT_EQ(Decode({fragment}, UnknownFields::kIgnore, info, data).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Codec, TextIsUtf8) {
  v1::GetServerInfoResponse info;
  std::vector<TensorData> data;
  const std::string good = Bytes(2, "\u00e9\U0010ffff");
  EXPECT_TRUE(
      Decode({absl::string_view(good)}, UnknownFields::kIgnore, info, data)
          .ok());
  for (const char* text : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xe2\x82",
                           "\xf4\x90\x80\x80", "\x80"}) {
    const std::string bad = Bytes(2, text);
    const absl::Status status =
        Decode({absl::string_view(bad)}, UnknownFields::kIgnore, info, data);
    ASSERT_THAT(FieldViolations(status), SizeIs(1));
    EXPECT_EQ(FieldViolations(status)[0].field, "version");
  }
}

TEST(Codec, ErrorsLeaveNothingBehind) {
  Result read = DecodeForward(SmallRequest().SerializeAsString());
  const absl::string_view bad("\x0a\x05", 2);
  EXPECT_FALSE(
      Decode({bad}, UnknownFields::kRefuse, read.header, read.data).ok());
  EXPECT_EQ(read.header.ByteSizeLong(), 0);
  EXPECT_TRUE(read.data.empty());
}

TEST(Codec, SendsNoMessageThatProtobufCannotRead) {
  // Never touched: one address, two gigabytes of claims.
  const std::string small(1 << 20, '\0');
  TensorData q{1, {}}, k{2, {}};
  for (int i = 0; i < 1024; ++i) {
    q.pieces.push_back(small);
    k.pieces.push_back(small);
  }
  v1::ForwardRequest header;
  EXPECT_TRUE(Encode(header, {q}).ok());
  const auto both = Encode(header, {q, k});
  EXPECT_EQ(both.status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_THAT(FieldViolations(both.status()), SizeIs(1));
  EXPECT_EQ(FieldViolations(both.status())[0].field, "k");

  std::vector<absl::string_view> fragments(2049, small);
  std::vector<TensorData> data;
  EXPECT_EQ(Decode(fragments, UnknownFields::kIgnore, header, data).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Codec, EncodeRefusesDataWithoutAPlace) {
  const std::string bytes = "x";
  v1::ForwardRequest header;
  EXPECT_FALSE(Encode(header, {{5, {bytes}}}).ok());   // not a Tensor
  EXPECT_FALSE(Encode(header, {{99, {bytes}}}).ok());  // not a field
  EXPECT_FALSE(Encode(header, {{1, {bytes}}, {1, {bytes}}}).ok());
  header.mutable_q()->set_data("own");
  EXPECT_FALSE(Encode(header, {{1, {bytes}}}).ok());
  EXPECT_TRUE(Encode(header, {{2, {bytes}}}).ok());
}

}  // namespace
}  // namespace attnd::wire
