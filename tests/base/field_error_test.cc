#include "base/field_error.h"

#include "absl/strings/cord.h"
#include "gtest/gtest.h"

namespace attnd {
namespace {

TEST(FieldError, SaysAndRemembersWhichFieldIsWrong) {
  const absl::Status status = FieldError("k.shape", "has rank 3: 4 is needed");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "k.shape: has rank 3: 4 is needed");
  EXPECT_EQ(ErrorField(status), "k.shape");
  EXPECT_EQ(ErrorField(FieldError("", "")), "");
}

TEST(FieldError, OtherStatusesNameNoField) {
  EXPECT_EQ(ErrorField(absl::OkStatus()), std::nullopt);
  EXPECT_EQ(ErrorField(absl::InvalidArgumentError("q: bad")), std::nullopt);
  absl::Status other = absl::InvalidArgumentError("q");
  other.SetPayload(kFieldUrl, absl::Cord("q"));
  EXPECT_EQ(ErrorField(other), std::nullopt);
}

}  // namespace
}  // namespace attnd
