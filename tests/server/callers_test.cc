#include "server/identity/callers.h"

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"
#include "tests/server/token_testing.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

constexpr absl::string_view kPeer = "ipv4:10.0.0.7:5123";
const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

class CallersTest : public ::testing::Test {
 protected:
  CallersTest() {
    file_.Write(absl::StrCat(
        "alice ", HashWord("tokenA"),
        " rate=2 queued_bytes=1MiB queued_flops=5 shares=3 priority=high\n",
        "bob ", HashWord("tokenB"), "\n"));
    store_ = *TokenStore::Open(file_.path(), nullptr);
  }

  // Who calls with these authorization headers.
  static absl::StatusOr<Caller> Call(
      Callers& callers, const std::vector<absl::string_view>& headers,
      absl::string_view peer = kPeer, absl::Time now = kStart) {
    return callers.Admit(peer, headers, now);
  }

  TempTokenFile file_;
  std::unique_ptr<TokenStore> store_;
};

TEST_F(CallersTest, WithoutATokenFileAnAddressIsAllThatCounts) {
  Callers callers({});
  const auto caller = Call(callers, {"Bearer whatever", "x"});
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->client, "ipv4:10.0.0.7");
  EXPECT_EQ(caller->most_priority, Priority::kHigh);
  EXPECT_EQ(caller->quota.queue_bytes, 0);
  EXPECT_EQ(caller->quota.shares, 1);
}

TEST_F(CallersTest, ATokenIsItsNamesWithItsLimits) {
  IdentityOptions options;
  options.limits = {.queue_bytes = 7, .queue_flops = 8};
  Callers callers(options, store_.get());
  const auto alice = Call(callers, {"Bearer tokenA"});
  ASSERT_TRUE(alice.ok()) << alice.status();
  EXPECT_EQ(alice->client, "token:alice");
  EXPECT_EQ(alice->quota.queue_bytes, 1 << 20);
  EXPECT_EQ(alice->quota.queue_flops, 5);
  EXPECT_EQ(alice->quota.shares, 3);
  EXPECT_EQ(alice->most_priority, Priority::kHigh);
  const auto bob = Call(callers, {"bearer tokenB"}, "unix:");
  ASSERT_TRUE(bob.ok()) << bob.status();
  EXPECT_EQ(bob->client, "token:bob");
  EXPECT_EQ(bob->quota.queue_bytes, 7);
  EXPECT_EQ(bob->quota.queue_flops, 8);
  EXPECT_EQ(bob->most_priority, Priority::kNormal);
  const auto nobody = Call(callers, {});
  ASSERT_TRUE(nobody.ok()) << nobody.status();
  EXPECT_EQ(nobody->client, "ipv4:10.0.0.7");
  EXPECT_EQ(nobody->most_priority, Priority::kNormal);
}

TEST_F(CallersTest, WhateverIsWrongTheRefusalIsTheSame) {
  IdentityOptions options;
  options.required = true;
  Callers callers(options, store_.get());
  const absl::Status none = Call(callers, {}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnauthenticated);
  const std::string far(4000, 'a');
  const std::vector<std::vector<absl::string_view>> wrong = {
      {""},
      {"Bearer"},
      {"Bearer "},
      {"Bearer  tokenA"},
      {"Bearer tokenA "},
      {"Bearer tokenA,tokenB"},
      {"Bearer tokenA, Bearer tokenB"},
      {"Bearer tokenC"},
      {"Bearer token"},
      {"Bearer tokenAA"},
      {"Bearer alice"},
      {"Basic tokenA"},
      {"tokenA"},
      {"Bearer\ttokenA"},
      {"Bearer token\xc3\x84"},
      {absl::string_view("Bearer tokenA\0", 14)},
      {far},
      {"Bearer tokenA", "Bearer tokenA"},
      {"Bearer tokenA", "Bearer tokenB"},
      {"Bearer tokenA", ""}};
  for (const auto& headers : wrong) {
    EXPECT_EQ(Call(callers, headers).status(), none) << headers[0];
  }
  // A hash is no token.
  const std::string hash = absl::StrCat("Bearer ", HashWord("tokenA"));
  EXPECT_EQ(Call(callers, {hash}).status(), none);
  EXPECT_EQ(Call(callers, {hash.substr(0, 7) + hash.substr(14)}).status(),
            none);
  EXPECT_EQ(callers.stats().no_identity, 1);
  EXPECT_EQ(callers.stats().token, wrong.size() + 2);
  EXPECT_TRUE(Call(callers, {"Bearer tokenA"}).ok());
}

TEST_F(CallersTest, AWrongTokenIsRefusedEvenWhereNoneIsNeeded) {
  Callers callers({}, store_.get());
  EXPECT_TRUE(
      absl::IsUnauthenticated(Call(callers, {"Bearer tokenC"}).status()));
}

TEST_F(CallersTest, ACertificateGoesBeforeAToken) {
  IdentityOptions options;
  options.required = true;
  Callers callers(options, store_.get(), [](absl::string_view peer) {
    return peer == kPeer ? "carol" : "";
  });
  for (const auto& headers :
       {std::vector<absl::string_view>{},
        std::vector<absl::string_view>{"Bearer tokenA"}}) {
    const auto caller = Call(callers, headers);
    ASSERT_TRUE(caller.ok()) << caller.status();
    EXPECT_EQ(caller->client, "certificate:carol");
    EXPECT_EQ(caller->quota.shares, 1);
    EXPECT_EQ(caller->most_priority, Priority::kNormal);
  }
  // It does not make a wrong token right.
  EXPECT_TRUE(
      absl::IsUnauthenticated(Call(callers, {"Bearer tokenC"}).status()));
  EXPECT_TRUE(
      absl::IsUnauthenticated(Call(callers, {}, "ipv4:10.0.0.8:1").status()));
  EXPECT_EQ(Call(callers, {"Bearer tokenA"}, "ipv4:10.0.0.8:1")->client,
            "token:alice");
}

TEST_F(CallersTest, CallsASecondAreEachClientsOwn) {
  IdentityOptions options;
  options.limits.calls_per_second = 1;
  Callers callers(options, store_.get());
  EXPECT_TRUE(Call(callers, {}).ok());
  const absl::Status refused = Call(callers, {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("--max_client_rate"));
  EXPECT_EQ(wire::RetryDelay(refused), absl::Seconds(1));
  EXPECT_EQ(wire::Reason(refused), "MAX_CLIENT_RATE");
  // Another port is the same client, another address is not, nor is a token
  // with two calls a second.
  EXPECT_FALSE(Call(callers, {}, "ipv4:10.0.0.7:9").ok());
  EXPECT_TRUE(Call(callers, {}, "ipv4:10.0.0.8:9").ok());
  EXPECT_TRUE(Call(callers, {"Bearer tokenA"}).ok());
  EXPECT_TRUE(Call(callers, {"Bearer tokenA"}).ok());
  EXPECT_FALSE(Call(callers, {"Bearer tokenA"}).ok());
  EXPECT_TRUE(Call(callers, {"Bearer tokenB"}).ok());
  EXPECT_FALSE(Call(callers, {"Bearer tokenB"}).ok());
  EXPECT_TRUE(Call(callers, {}, kPeer, kStart + absl::Seconds(1)).ok());
}

TEST_F(CallersTest, AWrongTokenTakesNoCallOfItsAddress) {
  IdentityOptions options;
  options.limits.calls_per_second = 1;
  Callers callers(options, store_.get());
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(absl::IsUnauthenticated(Call(callers, {"Bearer no"}).status()));
  }
  EXPECT_TRUE(Call(callers, {}).ok());
}

}  // namespace
}  // namespace attnd::server
