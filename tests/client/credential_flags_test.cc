// attnctl and attnload by the flags that both have for TLS and tokens.

#include "client/credential_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/client/tls_server.h"
#include "tests/integration/process.h"

namespace attnd::client {
namespace {

using ::attnd::testing::Identity;
using ::attnd::testing::Issue;
using ::attnd::testing::MakeAuthority;
using ::attnd::testing::Ran;
using ::attnd::testing::ReplaceFile;
using ::attnd::testing::RunProgram;
using ::attnd::testing::WriteIdentity;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kDone = 0, kBadInput = 2;

class CredentialFlagsTest : public ::testing::Test {
 protected:
  CredentialFlagsTest() {
    WriteIdentity(ca_, folder_.File("ca"));
    WriteIdentity(Issue(ca_, {.common_name = "me"}), folder_.File("client"));
    WriteIdentity(Issue(ca_, {}), folder_.File("other"));
    ReplaceFile(folder_.File("token"), "a-token\n");
    ReplaceFile(folder_.File("tokens"), "a-token another-token\n");
  }

  std::string Flag(const std::string& name, const std::string& file) const {
    return name + "=" + folder_.File(file);
  }
  // All that a server may ask for.
  std::vector<std::string> AllFlags() const {
    return {Flag("--tls_ca", "ca.pem"), Flag("--tls_cert", "client.pem"),
            Flag("--tls_key", "client.key"), Flag("--token_file", "token")};
  }
  static Ran Attnctl(const std::string& target,
                     std::vector<std::string> flags) {
    std::vector<std::string> command = {ATTND_ATTNCTL, "info",
                                        "--server=" + target};
    command.insert(command.end(), flags.begin(), flags.end());
    return RunProgram(command);
  }
  static Ran Attnload(const std::string& target,
                      std::vector<std::string> flags) {
    std::vector<std::string> command = {ATTND_ATTNLOAD,     target,
                                        "--shape=s2:h1:d4", "--warmup=0",
                                        "--requests=3",     "--check=0"};
    command.insert(command.end(), flags.begin(), flags.end());
    return RunProgram(command);
  }

  const Identity ca_ = MakeAuthority("test CA");
  testing::TempFolder folder_;
};

TEST_F(CredentialFlagsTest, BothSayWhoTheyAreOverTls) {
  TlsServer server(Issue(ca_, {.ips = {"127.0.0.1"}}), ca_.chain);
  const Ran info = Attnctl(server.address(), AllFlags());
  EXPECT_EQ(info.exit_status, kDone) << info.output;
  const Ran load = Attnload(server.address(), AllFlags());
  EXPECT_EQ(load.exit_status, kDone) << load.output;
  EXPECT_GE(server.seen().size(), 5);
  EXPECT_THAT(server.seen(), Each(AllOf(Field(&SeenCall::common_name, "me"),
                                        Field(&SeenCall::authorization,
                                              ElementsAre("Bearer a-token")))));
}

TEST_F(CredentialFlagsTest, AServersNameMayBeAnother) {
  TlsServer server(Issue(ca_, {.dns = {"other.test"}}));
  const std::string ca = Flag("--tls_ca", "ca.pem");
  const Ran refused = Attnctl(server.address(), {ca});
  EXPECT_EQ(refused.exit_status, 3) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("is for another name"));
  for (const auto run : {&Attnctl, &Attnload}) {
    const Ran ran = run(server.address(), {ca, "--tls_server_name=other.test"});
    EXPECT_EQ(ran.exit_status, kDone) << ran.output;
  }
}

TEST_F(CredentialFlagsTest, WithoutTlsNothingIsEncryptedAndBothSayWhy) {
  TlsServer server(Issue(ca_, {.ips = {"127.0.0.1"}}));
  for (const auto run : {&Attnctl, &Attnload}) {
    EXPECT_THAT(run(server.address(), {}).output,
                HasSubstr("does it expect TLS"));
    // Not by an authority of the system's.
    EXPECT_THAT(run(server.address(), {"--tls"}).output,
                HasSubstr("the server's certificate was not accepted"));
  }
}

TEST_F(CredentialFlagsTest, BadOnesAreUsageErrorsThatNameTheFlag) {
  const std::string ca = Flag("--tls_ca", "ca.pem");
  const std::string cert = Flag("--tls_cert", "client.pem");
  struct Case {
    std::vector<std::string> flags;
    std::string says;
  };
  const std::vector<Case> cases = {
      {{Flag("--tls_ca", "missing")}, "--tls_ca: " + folder_.File("missing")},
      {{Flag("--tls_ca", "ca.key")}, "has no certificate in PEM"},
      {{cert}, "--tls_key: is needed with "},
      {{cert, Flag("--tls_key", "other.key")}, "--tls_key: "},
      {{cert, Flag("--tls_key", "ca.pem")}, "has no private key in PEM"},
      {{Flag("--tls_key", "client.key")}, "--tls_cert: is needed with "},
      {{ca, "--tls_server_name=a b"}, "--tls_server_name: "},
      {{Flag("--token_file", "missing")}, "--token_file: "},
      {{Flag("--token_file", "tokens")}, "--token_file: "},
      {{"--tls_ca="}, "--tls_ca"},
      {{"--token=secret"}, "--token"}};
  for (const Case& bad : cases) {
    for (const auto run : {&Attnctl, &Attnload}) {
      const Ran ran = run("127.0.0.1:1", bad.flags);
      EXPECT_EQ(ran.exit_status, kBadInput) << ran.output;
      EXPECT_THAT(ran.output, HasSubstr(bad.says));
      EXPECT_THAT(ran.output, Not(HasSubstr("another-token")));
    }
  }
}

TEST_F(CredentialFlagsTest, ThereIsNoTlsOverAUnixSocket) {
  for (const auto run : {&Attnctl, &Attnload}) {
    const Ran ran = run("unix:/nowhere", {"--tls"});
    EXPECT_EQ(ran.exit_status, kBadInput) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("--tls: there is no TLS over a unix"));
  }
}

TEST_F(CredentialFlagsTest, ATokenInClearNeedsAFlag) {
  const std::string token = Flag("--token_file", "token");
  for (const auto run : {&Attnctl, &Attnload}) {
    // Where nobody answers: of a documentation's addresses.
    const Ran refused = run("192.0.2.1:1", {token});
    EXPECT_EQ(refused.exit_status, kBadInput) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr("--token_file: without TLS"));
  }
  TlsServer server;
  for (const auto run : {&Attnctl, &Attnload}) {
    const Ran ran = run(server.address(), {token, "--insecure_token"});
    EXPECT_EQ(ran.exit_status, kDone) << ran.output;
  }
}

TEST_F(CredentialFlagsTest, HelpSaysThem) {
  for (const std::vector<std::string>& program :
       std::vector<std::vector<std::string>>{{ATTND_ATTNCTL, "info", "--help"},
                                             {ATTND_ATTNLOAD, "--help"}}) {
    const Ran ran = RunProgram(program);
    for (const char* flag :
         {"--tls ", "--tls_ca FILE", "--tls_cert FILE", "--tls_key FILE",
          "--tls_server_name NAME", "--token_file FILE", "--insecure_token"}) {
      EXPECT_THAT(ran.output, HasSubstr(flag));
    }
  }
}

TEST(NameFlagTest, WhatIsNoFlagsStaysAsItIs) {
  const absl::Status status = absl::InvalidArgumentError("target: is long");
  EXPECT_EQ(NameFlag(status), status);
  EXPECT_TRUE(NameFlag(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace attnd::client
