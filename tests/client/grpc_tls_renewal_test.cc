// What is renewed on disk while a client lives.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/tls_server.h"
#include "tests/client/tls_ways.h"
#include "tests/integration/process.h"

namespace attnd::client {
namespace {

using ::attnd::testing::Identity;
using ::attnd::testing::Issue;
using ::attnd::testing::MakeAuthority;
using ::attnd::testing::ReplaceFile;
using ::attnd::testing::WriteIdentity;

class GrpcTlsRenewalTest : public TlsWays {
 protected:
  GrpcTlsRenewalTest() {
    WriteIdentity(Named("first"), folder_.File("client"));
    ReplaceFile(folder_.File("token"), "first\n");
    ReplaceFile(folder_.File("ca.pem"), ca_.chain);
    options_ = OneAttempt();
    options_.tls.enabled = true;
    options_.tls.ca_file = folder_.File("ca.pem");
    options_.tls.certificate_file = folder_.File("client.pem");
    options_.tls.key_file = folder_.File("client.key");
    options_.token_file = folder_.File("token");
  }

  Identity Named(const std::string& name) const {
    return Issue(ca_, {.common_name = name});
  }
  void Connect() {
    auto client = Client::Create(server_.address(), options_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  // A call, which succeeds, as the server saw it.
  SeenCall Call() {
    const auto info = client_->GetServerInfo({testing::kHangLimit});
    EXPECT_TRUE(info.ok()) << info.status();
    return server_.seen().back();
  }
  bool EventuallyCallsAs(const std::string& name) {
    return testing::Eventually([&] { return Call().common_name == name; });
  }
  bool EventuallySays(const std::string& token) {
    return testing::Eventually([&] {
      return Call().authorization ==
             std::vector<std::string>{"Bearer " + token};
    });
  }
  // Returns once the client has looked at all files after this was called: it
  // reads the token last, and the first of these tokens may have been read by a
  // look that had begun before.
  bool AwaitLook() {
    for (const char* token : {"one-look", "another-look"}) {
      ReplaceFile(folder_.File("token"), token);
      if (!EventuallySays(token)) return false;
    }
    return true;
  }

  const Identity ca_ = MakeAuthority("test CA");
  TlsServer server_{Issue(ca_, {.ips = {"127.0.0.1"}}), ca_.chain};
  testing::TempFolder folder_;
  ClientOptions options_;
  std::unique_ptr<Client> client_;
};

TEST_P(GrpcTlsRenewalTest, ARenewedCertificateIsShownAndNoCallFails) {
  Connect();
  EXPECT_EQ(Call().common_name, "first");
  WriteIdentity(Named("second"), folder_.File("client"));
  EXPECT_TRUE(EventuallyCallsAs("second"));
}

TEST_P(GrpcTlsRenewalTest, ARenewedTokenIsSaidAndNoCallFails) {
  Connect();
  EXPECT_TRUE(EventuallySays("first"));
  ReplaceFile(folder_.File("token"), "second\n");
  EXPECT_TRUE(EventuallySays("second"));
}

TEST_P(GrpcTlsRenewalTest, TornPairsAndGarbageLeaveWhatWasGood) {
  Connect();
  const Identity second = Named("second");
  ReplaceFile(folder_.File("client.pem"), second.chain);
  ASSERT_TRUE(AwaitLook());
  EXPECT_EQ(Call().common_name, "first");
  ReplaceFile(folder_.File("client.key"), "garbage");
  ReplaceFile(folder_.File("ca.pem"), "");
  ASSERT_TRUE(AwaitLook());
  EXPECT_EQ(Call().common_name, "first");
  ReplaceFile(folder_.File("client.key"), second.key);
  ReplaceFile(folder_.File("ca.pem"), ca_.chain);
  EXPECT_TRUE(EventuallyCallsAs("second"));
}

// Calls over the old connections are not cut.
TEST_P(GrpcTlsRenewalTest, CallsUnderWayOutliveRenewals) {
  options_.connections = 2;
  Connect();
  std::atomic<bool> enough{false};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([this, &enough] {
      while (!enough) {
        SmallForward forward;
        const auto report =
            client_->Forward(forward.call, {testing::kHangLimit});
        EXPECT_TRUE(report.ok()) << report.status();
        EXPECT_EQ(forward.o, forward.q);
      }
    });
  }
  for (const char* name : {"second", "third"}) {
    WriteIdentity(Named(name), folder_.File("client"));
    EXPECT_TRUE(EventuallyCallsAs(name));
  }
  enough = true;
  for (std::thread& caller : callers) caller.join();
}

TEST_P(GrpcTlsRenewalTest, EveryConnectionIsRenewed) {
  options_.connections = 3;
  Connect();
  WriteIdentity(Named("second"), folder_.File("client"));
  EXPECT_TRUE(EventuallyCallsAs("second"));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Call().common_name, "second");
}

TEST_P(GrpcTlsRenewalTest, ARefusedCallSaysThatRenewingFailed) {
  Connect();
  ReplaceFile(folder_.File("client.key"), "garbage");
  ASSERT_TRUE(AwaitLook());
  server_.Refuse({grpc::StatusCode::UNAUTHENTICATED, "who are you?"});
  const auto info = client_->GetServerInfo({testing::kHangLimit});
  EXPECT_TRUE(absl::IsUnauthenticated(info.status())) << info.status();
  EXPECT_EQ(info.status().message(),
            "who are you?; what has been renewed is not used: tls.key_file: " +
                folder_.File("client.key") + ": has no private key in PEM");
}

INSTANTIATE_TEST_SUITE_P(Ways, GrpcTlsRenewalTest, ::testing::Bool(),
                         NameOfTlsWay);

}  // namespace
}  // namespace attnd::client
