#include "server/scheduling/call_refusal.h"

#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "proto/wire/status.h"

namespace attnd::server {
namespace {

TEST(CallRefusalTest, EachSurvivesTheWireAndSaysItsName) {
  for (int i = 0; i < kCallRefusals; ++i) {
    const auto why = static_cast<CallRefusal>(i);
    const absl::Status status =
        Refused(why, absl::ResourceExhaustedError("none left"));
    EXPECT_EQ(status.message(), "none left");
    absl::Status read;
    ASSERT_TRUE(wire::DecodeStatus(wire::EncodeStatus(status), read).ok());
    EXPECT_EQ(RefusalOf(read), why);
    EXPECT_EQ(wire::Reason(read), absl::AsciiStrToUpper(NameOf(why)));
  }
}

TEST(CallRefusalTest, WithoutAReasonTheCodeSaysIt) {
  EXPECT_EQ(RefusalOf(absl::InvalidArgumentError("")), CallRefusal::kInvalid);
  EXPECT_EQ(RefusalOf(absl::UnimplementedError("")), CallRefusal::kUnsupported);
  EXPECT_EQ(RefusalOf(absl::ResourceExhaustedError("")), CallRefusal::kMemory);
  for (const absl::Status& status :
       {absl::OkStatus(), absl::InternalError(""), absl::CancelledError(""),
        absl::UnavailableError(""), absl::UnauthenticatedError("")}) {
    EXPECT_EQ(RefusalOf(status), std::nullopt) << status;
  }
}

// Another service's words are not ours.
TEST(CallRefusalTest, AReasonThatIsNotKnownCountsAsNone) {
  EXPECT_EQ(RefusalOf(wire::WithReason(absl::AbortedError(""), "MOON")),
            std::nullopt);
}

}  // namespace
}  // namespace attnd::server
