#include "proto/wire/grpc_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "base/field_error.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"

namespace attnd::wire {
namespace {

TEST(GrpcStatus, NothingIsLost) {
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte += static_cast<char>(i);
  for (int code = 0; code <= 16; ++code) {
    for (const std::string& message : {std::string(), std::string("plain"),
                                       std::string("\u20ac"), every_byte}) {
      absl::Status status(static_cast<absl::StatusCode>(code), message);
      EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
      status = WithRetryInfo(status, absl::Seconds(3));
      status.SetPayload("a/b", absl::Cord(every_byte));
      EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
    }
  }
}

TEST(GrpcStatus, OthersSeeCodeMessageAndDetailsOnlyWhenThereAreAny) {
  const grpc::Status plain = ToGrpcStatus(absl::NotFoundError("gone"));
  EXPECT_EQ(plain.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(plain.error_message(), "gone");
  EXPECT_EQ(plain.error_details(), "");
  const absl::Status bad = attnd::FieldError("q.shape", "bad");
  EXPECT_EQ(ToGrpcStatus(bad).error_details(), EncodeStatus(bad));
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(GrpcStatus, TheCallsOwnCodeWins) {
  const absl::Status detailed =
      WithRetryInfo(absl::InternalError("inner"), absl::Seconds(1));
  const absl::Status read = FromGrpcStatus(
      {grpc::StatusCode::UNAVAILABLE, "outer", EncodeStatus(detailed)});
  EXPECT_EQ(read.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(read.message(), "outer");
  EXPECT_EQ(RetryDelay(read), absl::Seconds(1));
}

TEST(GrpcStatus, DetailsOfAnotherKindAreLeftOut) {
  EXPECT_EQ(FromGrpcStatus({grpc::StatusCode::ABORTED, "m", "\xff\xff"}),
            absl::AbortedError("m"));
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

}  // namespace
}  // namespace attnd::wire
