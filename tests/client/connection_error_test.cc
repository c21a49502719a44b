// What gRPC says by itself is in grpc_tls_test.cc; here is what becomes of it.

#include "client/connection_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kSocketClosed[] = "UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed";

absl::Status NoConnection(const std::string& last) {
  return absl::UnavailableError(
      absl::StrCat("failed to connect to all addresses; last error: ", last));
}

std::string Explained(const std::string& last, ConnectionKind kind) {
  const absl::Status status = ExplainConnectionError(NoConnection(last), kind);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), EndsWith(last + ")"));
  return std::string(status.message());
}

TEST(ConnectionErrorTest, AlertsAreTheServersWord) {
  const auto alert = [](const char* text) {
    return Explained(
        absl::StrCat("UNKNOWN: ipv4:127.0.0.1:1: Ssl handshake failed: "
                     "SSL_ERROR_SSL: error:0A00045C:SSL routines::",
                     text),
        {.tls = true});
  };
  EXPECT_THAT(alert("tlsv13 alert certificate required"),
              StartsWith("the server requires a certificate"));
  EXPECT_THAT(alert("tlsv1 alert protocol version"),
              StartsWith("the server speaks no version of TLS"));
  EXPECT_THAT(alert("unsupported protocol"),
              StartsWith("the server speaks no version of TLS"));
  EXPECT_THAT(alert("tlsv1 alert unknown ca"),
              StartsWith("the server refused the TLS handshake"));
}

TEST(ConnectionErrorTest, WhyAServerHangsUpIsAskedNotGuessed) {
  const std::string plain = Explained(kSocketClosed, {});
  EXPECT_THAT(plain, HasSubstr("does it expect TLS"));
  const std::string none = Explained(kSocketClosed, {.tls = true});
  EXPECT_THAT(none, HasSubstr("does it require a certificate"));
  const std::string own =
      Explained(kSocketClosed, {.tls = true, .has_certificate = true});
  EXPECT_THAT(own, HasSubstr("does it refuse the client's certificate"));
  // An alert that comes once the handshake is over for the client.
  EXPECT_THAT(Explained("UNAVAILABLE: ipv4:127.0.0.1:1: Endpoint read failed",
                        {.tls = true}),
              HasSubstr("does it require a certificate"));
}

TEST(ConnectionErrorTest, OtherErrorsStayAsTheyAre) {
  const std::vector<absl::Status> others = {
      NoConnection("UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote "
                   "host: Connection refused"),
      absl::UnavailableError("Socket closed"),
      absl::UnavailableError("the server drains; certificate verify failed"),
      absl::InternalError("failed to connect to all addresses; Socket closed"),
      absl::OkStatus()};
  for (const absl::Status& status : others) {
    for (const bool tls : {false, true}) {
      EXPECT_EQ(ExplainConnectionError(status, {.tls = tls}), status);
    }
  }
}

TEST(ConnectionErrorTest, ANoteKeepsCodeMessageAndDetails) {
  const absl::Status status = wire::FieldError("q", "is odd");
  const absl::Status noted = WithNote(status, "and more");
  EXPECT_TRUE(absl::IsInvalidArgument(noted));
  EXPECT_EQ(noted.message(), "q: is odd; and more");
  ASSERT_EQ(wire::FieldViolations(noted).size(), 1);
  EXPECT_EQ(wire::FieldViolations(noted)[0].field, "q");
}

}  // namespace
}  // namespace attnd::client
