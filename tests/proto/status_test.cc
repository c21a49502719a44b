#include "proto/wire/status.h"

#include <random>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/wire_format.h"

namespace attnd::wire {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

absl::Status ThroughBytes(const absl::Status& status) {
  absl::Status read = absl::UnknownError("not set");
  EXPECT_TRUE(DecodeStatus(EncodeStatus(status), read).ok());
  return read;
}

TEST(Status, EveryCodeMessageAndPayloadSurvives) {
  const std::string every_byte = [] {
    std::string all;
    for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
    return all;
  }();
  for (int code = 0; code <= 16; ++code) {
    for (const std::string& message :
         {std::string(), std::string("plain"), std::string("\u00e9 \u20ac"),
          every_byte, std::string(5000, 'x')}) {
      absl::Status status(static_cast<absl::StatusCode>(code), message);
      EXPECT_EQ(ThroughBytes(status), status);
      status.SetPayload("type.googleapis.com/a.B", absl::Cord(every_byte));
      status.SetPayload("not a url", absl::Cord());
      status = WithRetryInfo(status, absl::Milliseconds(1500));
      EXPECT_EQ(ThroughBytes(status), status);
    }
  }
  EXPECT_EQ(EncodeStatus(absl::OkStatus()), "");
  const absl::Status odd(static_cast<absl::StatusCode>(-77), "m");
  EXPECT_EQ(ThroughBytes(odd).raw_code(), -77);
}

TEST(Status, BytesAreTheSameForTheSameStatus) {
  absl::Status ab = absl::InternalError("x"), ba = ab;
  ab.SetPayload("a", absl::Cord("1"));
  ab.SetPayload("b", absl::Cord("2"));
  ba.SetPayload("b", absl::Cord("2"));
  ba.SetPayload("a", absl::Cord("1"));
  EXPECT_EQ(EncodeStatus(ab), EncodeStatus(ba));
  // google.rpc.Status, byte by byte.
  EXPECT_EQ(EncodeStatus(ab),
            "\x08\x0d\x12\x01x\x1a\x06\x0a\x01"
            "a\x12\x01\x31\x1a\x06\x0a\x01"
            "b\x12\x01\x32");
}

TEST(Status, MalformedBytesAreRefusedAndChangeNothing) {
  absl::Status whole = FieldError("q", "bad");
  const std::string bytes =
      EncodeStatus(WithRetryInfo(whole, absl::Seconds(1)));
  std::mt19937_64 random(3);
  for (size_t i = 0; i < 20000; ++i) {
    std::string bad = bytes;
    if (i < bytes.size()) {
      bad.resize(i);
    } else {
      for (int n = random() % 4; n >= 0; --n) {
        bad[random() % bad.size()] = static_cast<char>(random());
      }
    }
    absl::Status status = absl::DataLossError("before");
    if (!DecodeStatus(bad, status).ok()) {
      EXPECT_EQ(status, absl::DataLossError("before"));
    }
    FieldViolations(status);
    RetryDelay(status);
  }
  for (const char* bad : {"\x08", "\x0b", "\x12\x05x", "\x1a\x02\x0a\x05",
                          "\x0d\x01", "\x12\xff\xff\xff\xff\x07"}) {
    absl::Status status;
    EXPECT_EQ(DecodeStatus(bad, status).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(Status, UnknownFieldsAreIgnored) {
  std::string bytes =
      "\x25"
      "abcd"
      "\x29"
      "abcdefgh"
      "\x30\x01";
  AppendField(2, "m", bytes);
  AppendField(9, "more", bytes);
  AppendTag({1, WireType::kVarint}, bytes);
  AppendVarint(5, bytes);
  absl::Status status;
  ASSERT_TRUE(DecodeStatus(bytes, status).ok());
  EXPECT_EQ(status, absl::NotFoundError("m"));
}

TEST(Status, FieldViolationsListsEveryOne) {
  absl::Status status = FieldError("k.shape", "has 3 dimensions");
  AddFieldViolation("v.shape", "", status);
  EXPECT_THAT(FieldViolations(ThroughBytes(status)),
              ElementsAre(AllOf(Field(&FieldViolation::field, "k.shape"),
                                Field(&FieldViolation::description,
                                      "has 3 dimensions")),
                          AllOf(Field(&FieldViolation::field, "v.shape"),
                                Field(&FieldViolation::description, ""))));
  EXPECT_THAT(FieldViolations(absl::InternalError("x")), IsEmpty());
  EXPECT_THAT(FieldViolations(absl::OkStatus()), IsEmpty());
}

// base's form stays in the process; others read google.rpc.BadRequest.
TEST(Status, FieldErrorsOfEitherFormAreTheSameOnTheWire) {
  const std::string odd("a\0b: c", 6);
  for (const std::string& field :
       {std::string("k.shape"), std::string(), odd, std::string(300, 'f')}) {
    for (const std::string& description :
         {std::string("has 3 dimensions"), std::string(), odd,
          std::string(20000, 'd')}) {
      const absl::Status base = attnd::FieldError(field, description);
      const absl::Status standard = wire::FieldError(field, description);
      EXPECT_EQ(EncodeStatus(base), EncodeStatus(standard));
      EXPECT_EQ(ThroughBytes(base), standard);
      EXPECT_EQ(ThroughBytes(standard), standard);
      for (const absl::Status& status : {base, standard}) {
        EXPECT_THAT(FieldViolations(status),
                    ElementsAre(AllOf(
                        Field(&FieldViolation::field, field),
                        Field(&FieldViolation::description, description))));
      }
    }
  }
}

TEST(Status, BadRequestByteByByte) {
  absl::Status status = attnd::FieldError("q", "no");
  AddFieldViolation("k", "", status);
  const std::string bad_request =
      "\x0a\x07\x0a\x01q\x12\x02no\x0a\x05\x0a\x01k\x12" + std::string(1, '\0');
  std::string any;
  AppendField(1, "type.googleapis.com/google.rpc.BadRequest", any);
  AppendField(2, bad_request, any);
  std::string expected =
      "\x08\x03\x12\x05"
      "q: no";
  AppendField(3, any, expected);
  EXPECT_EQ(EncodeStatus(status), expected);
}

// Nobody sends one, but anybody could.
TEST(Status, AFieldThatIsNotInTheMessageIsNoViolation) {
  for (const char* message : {"", "q", "q:", "k: bad"}) {
    absl::Status status = absl::InvalidArgumentError(message);
    status.SetPayload(kFieldUrl, absl::Cord("q"));
    EXPECT_THAT(FieldViolations(status), IsEmpty());
    EXPECT_EQ(ThroughBytes(status), status);
  }
}

TEST(Status, RetryDelaySurvives) {
  const absl::Status busy = absl::ResourceExhaustedError("queue is full");
  EXPECT_FALSE(RetryDelay(busy));
  for (absl::Duration delay :
       {absl::ZeroDuration(), absl::Nanoseconds(1), absl::Milliseconds(250),
        absl::Seconds(90) + absl::Nanoseconds(999'999'999)}) {
    EXPECT_EQ(RetryDelay(ThroughBytes(WithRetryInfo(busy, delay))), delay);
  }
  EXPECT_EQ(RetryDelay(WithRetryInfo(busy, -absl::Seconds(1))),
            absl::ZeroDuration());
  EXPECT_EQ(RetryDelay(WithRetryInfo(busy, absl::InfiniteDuration())),
            absl::Seconds(315'576'000'000));
}

TEST(Status, NonsenseRetryInfoIsNone) {
  const auto delay = [](absl::string_view duration) {
    std::string info;
    AppendField(1, duration, info);
    absl::Status status = absl::UnavailableError("");
    status.SetPayload("type.googleapis.com/google.rpc.RetryInfo",
                      absl::Cord(info));
    return RetryDelay(status);
  };
  const std::string minus_one = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
  EXPECT_FALSE(delay("\x08" + minus_one));
  EXPECT_FALSE(delay("\x10" + minus_one));
  EXPECT_FALSE(delay("\x08\xff\xff\xff\xff\xff\xff\xff\x7f"));
  EXPECT_FALSE(delay("\x10\x80\x94\xeb\xdc\x03"));  // 1e9 nanoseconds
  EXPECT_FALSE(delay("\x08"));
  EXPECT_EQ(delay("\x08\x02"), absl::Seconds(2));
}

TEST(Status, EchoIsShortAndPrintable) {
  EXPECT_EQ(Echo("plain text"), "plain text");
  EXPECT_EQ(Echo("a\n\"\x01\xff"), "a\\n\\\"\\x01\\xff");
  EXPECT_EQ(Echo(std::string(64, 'x')), std::string(64, 'x'));
  EXPECT_EQ(Echo(std::string(65, 'x')), std::string(61, 'x') + "...");
  EXPECT_EQ(Echo(std::string(1 << 20, '\0')).size(), 64);
}

TEST(Status, TheIdOfTheCallIsARequestInfo) {
  EXPECT_EQ(RequestId(absl::InternalError("x")), "");
  const absl::Status status = WithRequestId(absl::InternalError("x"), "job-7");
  EXPECT_EQ(RequestId(status), "job-7");
  EXPECT_EQ(RequestId(ThroughBytes(status)), "job-7");
  EXPECT_EQ(std::string(*status.GetPayload(
                "type.googleapis.com/google.rpc.RequestInfo")),
            "\x0a\x05job-7");
  absl::Status odd = absl::InternalError("x");
  odd.SetPayload("type.googleapis.com/google.rpc.RequestInfo",
                 absl::Cord("\x0a\x09job-7"));
  EXPECT_EQ(RequestId(odd), "");
}

}  // namespace
}  // namespace attnd::wire
