#include "server/tls/credentials_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tests/certificates.h"
#include "tests/temp_folder.h"

namespace attnd::server::tls {
namespace {

using ::attnd::testing::Identity;
using ::attnd::testing::ReplaceFile;
using ::attnd::testing::SelfSigned;
using ::attnd::testing::TempFolder;
using ::attnd::testing::WriteIdentity;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

class CredentialsWatchTest : public ::testing::Test {
 protected:
  void Write(const Identity& identity) {
    WriteIdentity(identity, folder_.File("own"));
  }

  TempFolder folder_;
  const CredentialFiles files_{.certificate = folder_.File("own.pem"),
                               .key = folder_.File("own.key"),
                               .client_ca = {}};
};

TEST_F(CredentialsWatchTest, StartsOnlyWithAGoodPair) {
  EXPECT_THAT(Message(CredentialsWatch::Start(files_).status()),
              HasSubstr("--tls_cert: cannot read"));
  Write(SelfSigned({}));
  EXPECT_TRUE(CredentialsWatch::Start(files_).ok());
}

// Opening one waits for a writer, and handshakes with it.
TEST_F(CredentialsWatchTest, APipeIsNoFile) {
  Write(SelfSigned({}));
  std::remove(files_.key.c_str());
  ASSERT_EQ(mkfifo(files_.key.c_str(), 0600), 0);
  EXPECT_THAT(Message(CredentialsWatch::Start(files_).status()),
              HasSubstr("is not a regular file"));
}

TEST_F(CredentialsWatchTest, RenewsAPair) {
  Write(SelfSigned({}));
  auto watch = CredentialsWatch::Start(files_);
  ASSERT_TRUE(watch.ok());
  const auto before = (*watch)->current();
  EXPECT_EQ((*watch)->Look(), std::nullopt);
  EXPECT_EQ((*watch)->current(), before);
  Write(SelfSigned({}));
  EXPECT_EQ((*watch)->Look(), absl::OkStatus());
  EXPECT_NE((*watch)->current(), before);
  EXPECT_EQ((*watch)->Look(), std::nullopt);
}

// Whoever renews writes one file after the other.
TEST_F(CredentialsWatchTest, ATornPairKeepsTheLastGoodOne) {
  const Identity first = SelfSigned({}), second = SelfSigned({});
  Write(first);
  auto watch = CredentialsWatch::Start(files_);
  ASSERT_TRUE(watch.ok());
  const auto before = (*watch)->current();
  ReplaceFile(files_.certificate, second.chain);
  // It may be on its way.
  EXPECT_EQ((*watch)->Look(), std::nullopt);
  EXPECT_EQ((*watch)->current(), before);
  ReplaceFile(files_.key, second.key);
  EXPECT_EQ((*watch)->Look(), absl::OkStatus());
  EXPECT_NE((*watch)->current(), before);
}

TEST_F(CredentialsWatchTest, WhatStaysBrokenIsSaidOnce) {
  Write(SelfSigned({}));
  auto watch = CredentialsWatch::Start(files_);
  ASSERT_TRUE(watch.ok());
  const auto before = (*watch)->current();
  ReplaceFile(files_.certificate, "garbage");
  EXPECT_EQ((*watch)->Look(), std::nullopt);
  const std::optional<absl::Status> told = (*watch)->Look();
  ASSERT_TRUE(told.has_value());
  EXPECT_THAT(Message(*told), HasSubstr("--tls_cert: no certificate"));
  EXPECT_EQ((*watch)->Look(), std::nullopt);
  EXPECT_EQ((*watch)->current(), before);
  std::remove(files_.key.c_str());
  EXPECT_EQ((*watch)->Look(), std::nullopt);
  EXPECT_TRUE((*watch)->Look().has_value());
  EXPECT_EQ((*watch)->current(), before);
}

TEST_F(CredentialsWatchTest, WhatIsAsBeforeAgainIsNoRenewal) {
  const Identity own = SelfSigned({});
  Write(own);
  auto watch = CredentialsWatch::Start(files_);
  ASSERT_TRUE(watch.ok());
  ReplaceFile(files_.key, "garbage");
  EXPECT_EQ((*watch)->Look(), std::nullopt);
  Write(own);
  EXPECT_EQ((*watch)->Look(), std::nullopt);
  EXPECT_EQ((*watch)->Look(), std::nullopt);
}

}  // namespace
}  // namespace attnd::server::tls
