#include "server/tls/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "tests/certificates.h"

namespace attnd::server::tls {
namespace {

using ::attnd::testing::Identity;
using ::attnd::testing::Issue;
using ::attnd::testing::MakeAuthority;
using ::attnd::testing::MakeIntermediate;
using ::attnd::testing::SelfSigned;
using ::testing::HasSubstr;

absl::Status Try(const CredentialText& text, bool asks_clients = false) {
  CredentialFiles files{.certificate = "c", .key = "k"};
  if (asks_clients) files.client_ca = "a";
  return Credentials::Create(text, files).status();
}

std::string Message(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CredentialsTest, TakesAPairOfEitherKind) {
  for (const auto kind :
       {attnd::testing::KeyKind::kEcP256, attnd::testing::KeyKind::kRsa2048}) {
    const Identity own = SelfSigned({.key = kind});
    EXPECT_TRUE(Try({own.chain, own.key, ""}).ok());
    EXPECT_TRUE(Try({own.chain, own.key, own.chain}, true).ok());
  }
}

TEST(CredentialsTest, TakesAChain) {
  const Identity root = MakeAuthority("root");
  const Identity own = Issue(MakeIntermediate(root, "between"), {});
  EXPECT_TRUE(Try({own.chain, own.key, ""}).ok());
}

TEST(CredentialsTest, SaysWhatIsWrong) {
  const Identity own = SelfSigned({}), other = SelfSigned({});
  EXPECT_THAT(Message(Try({"", own.key, ""})),
              HasSubstr("--tls_cert: no certificate"));
  EXPECT_THAT(Message(Try({"rubbish", own.key, ""})),
              HasSubstr("--tls_cert: no certificate"));
  EXPECT_THAT(
      Message(Try({own.chain.substr(0, own.chain.size() / 2), own.key, ""})),
      HasSubstr("--tls_cert: a certificate is broken"));
  EXPECT_THAT(Message(Try({own.key, own.key, ""})), HasSubstr("--tls_cert: "));
  EXPECT_THAT(Message(Try({own.chain, "", ""})),
              HasSubstr("--tls_key: no private key"));
  EXPECT_THAT(Message(Try({own.chain, own.chain, ""})),
              HasSubstr("--tls_key: no private key"));
  EXPECT_THAT(Message(Try({own.chain, other.key, ""})),
              HasSubstr("--tls_key: the key is not that of --tls_cert"));
  EXPECT_THAT(Message(Try({own.chain, own.key, ""}, true)),
              HasSubstr("--tls_client_ca: no certificate"));
  const Identity old =
      SelfSigned({.starts = -absl::Hours(2), .ends = -absl::Hours(1)});
  EXPECT_THAT(Message(Try({old.chain, old.key, ""})), HasSubstr("has expired"));
  const Identity early =
      SelfSigned({.starts = absl::Hours(1), .ends = absl::Hours(2)});
  EXPECT_THAT(Message(Try({early.chain, early.key, ""})),
              HasSubstr("not valid yet"));
}

}  // namespace
}  // namespace attnd::server::tls
