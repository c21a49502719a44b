// Which channels get their TLS beneath gRPC, and that each is its own's.

#include "attnd/tls_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/tls_sockets.h"
#include "tests/client/tls_server.h"
#include "tests/integration/process.h"

namespace attnd::client {
namespace {

using ::attnd::testing::Identity;
using ::attnd::testing::Issue;
using ::attnd::testing::MakeAuthority;
using ::testing::StartsWith;

// A variable of the environment, for as long as this lives.
class Variable {
 public:
  // Null: there is none.
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = getenv(name)) before_ = before;
    Set(value);
  }
  ~Variable() { Set(before_.has_value() ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void Set(const char* value) {
    EXPECT_EQ(value == nullptr ? unsetenv(name_) : setenv(name_, value, 1), 0);
  }

  const char* const name_;
  std::optional<std::string> before_;
};

class TlsGuardTest : public ::testing::Test {
 protected:
  TlsGuardTest() { EXPECT_TRUE(UseTlsGuard()); }
  ~TlsGuardTest() override { UseTlsGuard(false); }

  bool IsFor(const std::string& target) const {
    return MakeTlsSockets(target, {.authorities = ca_.chain}, "") != nullptr;
  }
  ClientOptions Trusting(const Identity& ca) const {
    ClientOptions options = OneAttempt();
    options.tls.enabled = true;
    options.tls.ca_pem = ca.chain;
    return options;
  }

  const Variable no_proxy_[3] = {{"grpc_proxy", nullptr},
                                 {"https_proxy", nullptr},
                                 {"http_proxy", nullptr}};
  const Identity ca_ = MakeAuthority("test CA");
};

TEST_F(TlsGuardTest, IsForWhomItIsAskedFor) {
  EXPECT_TRUE(IsFor("localhost:7411"));
  EXPECT_TRUE(UseTlsGuard(false));
  EXPECT_FALSE(IsFor("localhost:7411"));
}

TEST_F(TlsGuardTest, LeavesToGrpcWhatThatDoesOtherwise) {
  EXPECT_FALSE(IsFor("ipv4:127.0.0.1:7411"));
  for (const char* proxy : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    const Variable named(proxy, "http://127.0.0.1:1");
    EXPECT_FALSE(IsFor("localhost:7411")) << proxy;
  }
  const auto for_system = [] {
    return MakeTlsSockets("localhost:7411", {}, "") != nullptr;
  };
  constexpr const char* kRoots[] = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
                                    "GRPC_NOT_USE_SYSTEM_SSL_ROOTS"};
  const Variable no_file(kRoots[0], nullptr), no_word(kRoots[1], nullptr);
  EXPECT_TRUE(for_system());
  for (const char* roots : kRoots) {
    const Variable named(roots, "true");
    EXPECT_FALSE(for_system()) << roots;
    EXPECT_TRUE(IsFor("localhost:7411")) << roots;
  }
}

TEST_F(TlsGuardTest, ClientsOfOneServerTrustWhomTheyWereTold) {
  const TlsServer server(Issue(ca_, {.ips = {"127.0.0.1"}}));
  const TlsServer plain;
  const Identity foreign = MakeAuthority("foreign CA");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Call(server.address(), Trusting(ca_)).ok());
    EXPECT_THAT(
        std::string(Call(server.address(), Trusting(foreign)).message()),
        StartsWith("the server's certificate was not accepted"));
    // Of those that are closed, numbers are used again.
    EXPECT_TRUE(Call(plain.address(), OneAttempt()).ok());
  }
}

TEST_F(TlsGuardTest, ConnectsByIpv6) {
  const TlsServer server(Issue(ca_, {.ips = {"::1"}}), "", "[::1]:0");
  if (server.port() <= 0) GTEST_SKIP() << "there is no IPv6";
  const absl::Status status =
      Call(absl::StrCat("[::1]:", server.port()), Trusting(ca_));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(TlsGuardTest, ConnectsAgainToAServerThatWasRestarted) {
  const Identity own = Issue(ca_, {.ips = {"127.0.0.1"}});
  auto server = std::make_unique<TlsServer>(own);
  const std::string address = server->address();
  ClientOptions options = Trusting(ca_);
  options.connections = 2;
  options.max_backoff = absl::Milliseconds(100);
  const auto client = Client::Create(address, options);
  ASSERT_TRUE(client.ok()) << client.status();
  for (int restart = 0; restart < 2; ++restart) {
    for (int i = 0; i < 4; ++i) {
      const bool answered = testing::Eventually(
          [&] { return (*client)->GetServerInfo({testing::kHangLimit}).ok(); });
      EXPECT_TRUE(answered);
    }
    server.reset();
    EXPECT_FALSE((*client)->GetServerInfo({testing::kHangLimit}).ok());
    server = std::make_unique<TlsServer>(own, "", address);
  }
}

}  // namespace
}  // namespace attnd::client
