#include "client/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "proto/wire/status.h"
#include "tests/certificates.h"
#include "tests/client/manual_executor.h"

namespace attnd::client {
namespace {

using ::attnd::testing::Identity;
using ::attnd::testing::Issue;
using ::attnd::testing::MakeAuthority;
using ::attnd::testing::ReplaceFile;
using ::attnd::testing::WriteIdentity;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTarget[] = "attnd.example:7411";

class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    WriteIdentity(ca_, File("ca"));
    WriteIdentity(Issue(ca_, {.common_name = "first"}), File("client"));
    ReplaceFile(File("token"), "first\n");
    options_.tls.enabled = true;
    options_.tls.ca_file = File("ca.pem");
    options_.tls.certificate_file = File("client.pem");
    options_.tls.key_file = File("client.key");
    options_.token_file = File("token");
  }
  ~CredentialsTest() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name) const {
    return folder_ + "/" + name;
  }
  std::shared_ptr<Credentials> Load() const {
    auto credentials = Credentials::Load(kTarget, options_);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    return *std::move(credentials);
  }
  // Whether they are refused because of `field`, and say `why`.
  void ExpectRefused(const std::string& field, const std::string& why,
                     const std::string& target = kTarget) const {
    EXPECT_TRUE(options_.Validate().ok()) << options_.Validate();
    const absl::Status status = Credentials::Load(target, options_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    ASSERT_EQ(wire::FieldViolations(status).size(), 1) << status;
    EXPECT_EQ(wire::FieldViolations(status)[0].field, field);
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }

  std::string folder_ = ::testing::TempDir() + "/attnd_credentials_XXXXXX";
  const Identity ca_ = MakeAuthority("test CA");
  ClientOptions options_;
};

TEST_F(CredentialsTest, FilesAndTextsAreTaken) {
  const auto from_files = Load();
  EXPECT_EQ(from_files->tls()->authorities, ca_.chain);
  EXPECT_EQ(*from_files->authorization(), "Bearer first");
  EXPECT_TRUE(from_files->renewable());
  const Identity client = Issue(ca_, {});
  options_ = {};
  options_.tls.enabled = true;
  options_.tls.ca_pem = ca_.chain;
  options_.tls.certificate_pem = client.chain;
  options_.tls.key_pem = client.key;
  options_.token = "second";
  const auto from_texts = Load();
  EXPECT_EQ(from_texts->tls()->key, client.key);
  EXPECT_EQ(*from_texts->authorization(), "Bearer second");
  EXPECT_FALSE(from_texts->renewable());
}

TEST_F(CredentialsTest, NothingIsTrustedOrSaidUnlessOptionsDo) {
  options_ = {};
  const auto credentials = Load();
  EXPECT_EQ(credentials->tls(), nullptr);
  EXPECT_EQ(credentials->authorization(), nullptr);
  EXPECT_FALSE(credentials->renewable());
}

TEST_F(CredentialsTest, AFileThatCannotBeReadIsNamed) {
  const std::string fifo = File("fifo"), large = File("large");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ReplaceFile(large, std::string((1 << 20) + 1, 'x'));
  const ClientOptions good = options_;
  const std::vector<std::pair<std::string, std::string>> files = {
      {File("missing"), "No such file"},
      {fifo, "is not a regular file"},
      {folder_, "is not a regular file"},
      {large, "has more than 1048576 bytes"}};
  for (const auto& [file, why] : files) {
    options_.tls.ca_file = file;
    ExpectRefused("tls.ca_file", file + ": " + why);
    options_ = good;
    options_.tls.certificate_file = file;
    ExpectRefused("tls.certificate_file", file + ": " + why);
    options_ = good;
    options_.tls.key_file = file;
    ExpectRefused("tls.key_file", file + ": " + why);
    options_ = good;
    options_.token_file = file;
    ExpectRefused("token_file", file + ": " + why);
    options_ = good;
  }
}

TEST_F(CredentialsTest, AFileThatHoldsSomethingElseIsNamed) {
  const ClientOptions good = options_;
  options_.tls.ca_file = File("client.key");
  ExpectRefused("tls.ca_file", "client.key: has no certificate in PEM");
  options_ = good;
  options_.tls.certificate_file = File("token");
  ExpectRefused("tls.certificate_file", "token: has no certificate in PEM");
  options_ = good;
  options_.tls.key_file = File("ca.pem");
  ExpectRefused("tls.key_file", "ca.pem: has no private key in PEM");
  options_.tls.key_file = File("ca.key");
  ExpectRefused("tls.key_file", "does not belong to the client's certificate");
  options_ = good;
  options_.token_file = File("client.pem");
  ExpectRefused("token_file", "client.pem: is not one token");
  options_ = good;
  options_.tls.ca_file = "";
  options_.tls.ca_pem = "none";
  ExpectRefused("tls.ca_pem", "has no certificate in PEM");
}

TEST_F(CredentialsTest, ThereIsNoTlsOverUnixSockets) {
  ExpectRefused("tls.enabled", "unix socket", "unix:/run/attnd");
  ExpectRefused("tls.enabled", "unix socket", "unix-abstract:attnd");
}

TEST_F(CredentialsTest, ATokenDoesNotCrossANetworkInClear) {
  options_.tls = {};
  ExpectRefused("token_file", "could read the token");
  ExpectRefused("token_file", "could read the token", "127.example.com:1");
  options_.insecure_token = true;
  EXPECT_FALSE(Load()->stays_on_host());
  options_.insecure_token = false;
  for (const char* target : {"127.0.0.1:1", "localhost:1", "[::1]:1"}) {
    const auto credentials = Credentials::Load(target, options_);
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    EXPECT_TRUE((*credentials)->stays_on_host());
  }
  EXPECT_TRUE(Credentials::Load("unix:/run/attnd", options_).ok());
  options_.token_file = "";
  options_.token = "secret";
  ExpectRefused("token", "could read the token");
  EXPECT_THAT(
      std::string(Credentials::Load(kTarget, options_).status().message()),
      Not(HasSubstr("secret")));
}

TEST_F(CredentialsTest, WhatIsRenewedIsTakenAndWhatIsNotStaysTheSame) {
  const auto credentials = Load();
  const auto first = credentials->tls();
  const auto first_token = credentials->authorization();
  credentials->Renew();
  EXPECT_EQ(credentials->tls(), first);
  EXPECT_EQ(credentials->authorization(), first_token);

  const Identity second = Issue(ca_, {.common_name = "second"});
  WriteIdentity(second, File("client"));
  credentials->Renew();
  EXPECT_EQ(credentials->tls()->certificate, second.chain);
  EXPECT_EQ(credentials->tls()->key, second.key);
  EXPECT_EQ(credentials->authorization(), first_token);

  ReplaceFile(File("token"), "second");
  const Identity other_ca = MakeAuthority("next CA");
  ReplaceFile(File("ca.pem"), ca_.chain + other_ca.chain);
  credentials->Renew();
  EXPECT_EQ(credentials->tls()->authorities, ca_.chain + other_ca.chain);
  EXPECT_EQ(*credentials->authorization(), "Bearer second");
  EXPECT_TRUE(credentials->renewal().ok());
}

TEST_F(CredentialsTest, ATornPairLeavesTheLastGoodOne) {
  const auto credentials = Load();
  const auto first = credentials->tls();
  const Identity second = Issue(ca_, {.common_name = "second"});
  ReplaceFile(File("client.pem"), second.chain);
  credentials->Renew();
  EXPECT_EQ(credentials->tls(), first);
  EXPECT_THAT(std::string(credentials->renewal().message()),
              HasSubstr("tls.key_file: "));
  ReplaceFile(File("client.key"), second.key);
  credentials->Renew();
  EXPECT_EQ(credentials->tls()->certificate, second.chain);
  EXPECT_TRUE(credentials->renewal().ok());
}

TEST_F(CredentialsTest, GarbageOrNothingLeavesTheLastGood) {
  const auto credentials = Load();
  const auto first = credentials->tls();
  const Identity good = Issue(ca_, {});
  for (const std::string& text :
       {std::string(), std::string("garbage"), std::string("\0\0", 2),
        good.chain.substr(0, good.chain.size() / 2)}) {
    ReplaceFile(File("client.pem"), text);
    credentials->Renew();
    EXPECT_EQ(credentials->tls(), first);
    EXPECT_FALSE(credentials->renewal().ok());
  }
  for (const char* name : {"ca.pem", "client.pem", "client.key", "token"}) {
    ASSERT_EQ(unlink(File(name).c_str()), 0);
  }
  credentials->Renew();
  EXPECT_EQ(credentials->tls(), first);
  EXPECT_EQ(*credentials->authorization(), "Bearer first");
  EXPECT_FALSE(credentials->renewal().ok());
}

// One does not wait for the other.
TEST_F(CredentialsTest, ATokenIsRenewedBesideABrokenPair) {
  const auto credentials = Load();
  ReplaceFile(File("client.key"), "garbage");
  ReplaceFile(File("token"), "second");
  credentials->Renew();
  EXPECT_EQ(*credentials->authorization(), "Bearer second");
  EXPECT_THAT(std::string(credentials->renewal().message()),
              HasSubstr("tls.key_file: "));
}

TEST_F(CredentialsTest, FilesAreReadAgainEverySecond) {
  const auto credentials = Load();
  ManualExecutor executor;
  KeepRenewed(credentials, executor);
  for (const char* token : {"second", "third"}) {
    ReplaceFile(File("token"), token);
    EXPECT_NE(*credentials->authorization(), std::string("Bearer ") + token);
    executor.Advance(kRenewalInterval);
    EXPECT_EQ(*credentials->authorization(), std::string("Bearer ") + token);
  }
}

}  // namespace
}  // namespace attnd::client
