// Tokens over real ports: which calls say them, and what a refusal becomes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/client/tls_server.h"
#include "tests/integration/process.h"

namespace attnd::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

auto Says(const std::string& authorization) {
  return Field(&SeenCall::authorization, ElementsAre(authorization));
}

ClientOptions WithToken() {
  ClientOptions options;
  options.token = "a-token";
  return options;
}

TEST(GrpcTokenTest, EveryCallSaysTheToken) {
  TlsServer server;
  const auto client = Client::Create(server.address(), WithToken());
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->GetServerInfo({testing::kHangLimit}).ok());
  SmallForward unary;
  EXPECT_TRUE((*client)->Forward(unary.call, {testing::kHangLimit}).ok());
  SmallForward exchange;
  CallOptions in_chunks = {testing::kHangLimit};
  in_chunks.transport = TransportKind::kStream;
  const auto report = (*client)->Forward(exchange.call, in_chunks);
  EXPECT_TRUE(absl::IsInternal(report.status())) << report.status();
  EXPECT_THAT(server.seen(), SizeIs(3));
  EXPECT_THAT(server.seen(), Each(Says("Bearer a-token")));
}

TEST(GrpcTokenTest, NoTokenSaysNothing) {
  TlsServer server;
  EXPECT_TRUE(Call(server.address(), {}).ok());
  ASSERT_THAT(server.seen(), SizeIs(1));
  EXPECT_THAT(server.seen()[0].authorization, IsEmpty());
}

TEST(GrpcTokenTest, ATokenGoesOverAUnixSocketToo) {
  testing::TempFolder folder;
  const std::string target = "unix:" + folder.File("socket");
  TlsServer server(target);
  const absl::Status status = Call(target, WithToken());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(server.seen(), ElementsAre(Says("Bearer a-token")));
}

// Where a proxy that the environment names would read it.
TEST(GrpcTokenTest, ATokenInClearTakesNoProxy) {
  TlsServer server;
  ASSERT_EQ(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
  const absl::Status said = Call(server.address(), WithToken());
  const absl::Status silent = Call(server.address(), OneAttempt());
  ASSERT_EQ(unsetenv("http_proxy"), 0);
  EXPECT_TRUE(said.ok()) << said;
  EXPECT_TRUE(absl::IsUnavailable(silent)) << "the proxy is not looked for";
}

TEST(GrpcTokenTest, WhoIsNotKnownOrAllowedIsNotTriedAgain) {
  for (const auto code : {grpc::StatusCode::UNAUTHENTICATED,
                          grpc::StatusCode::PERMISSION_DENIED}) {
    for (const TransportKind kind :
         {TransportKind::kUnary, TransportKind::kStream}) {
      TlsServer server;
      server.Refuse({code, "no"});
      const auto client = Client::Create(server.address(), WithToken());
      ASSERT_TRUE(client.ok()) << client.status();
      SmallForward forward;
      CallOptions options = {testing::kHangLimit};
      options.transport = kind;
      const auto report = (*client)->Forward(forward.call, options);
      EXPECT_EQ(report.status(),
                absl::Status(static_cast<absl::StatusCode>(code), "no"));
      EXPECT_THAT(server.seen(), SizeIs(1));
    }
  }
}

}  // namespace
}  // namespace attnd::client
