#include "server/net/connection_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attnd::server {
namespace {

using ::testing::Optional;

constexpr Origin User(int user) {
  return {Origin::Kind::kUser, static_cast<uint64_t>(user)};
}

TEST(ConnectionLimits, AdmitAsManyAsThereMayBeInAll) {
  ConnectionLimits limits(3, 3);
  for (int user = 0; user < 3; ++user) {
    EXPECT_EQ(limits.Add(User(user)), std::nullopt);
  }
  EXPECT_THAT(limits.Add(User(3)), Optional(Refusal::kMaxConnections));
  EXPECT_EQ(limits.open(), 3);
  limits.Remove(User(1));
  EXPECT_EQ(limits.Add(User(3)), std::nullopt);
  EXPECT_THAT(limits.Add(User(1)), Optional(Refusal::kMaxConnections));
}

TEST(ConnectionLimits, AdmitAsManyAsOneOriginMayHave) {
  ConnectionLimits limits(100, 2);
  EXPECT_EQ(limits.Add(User(1)), std::nullopt);
  EXPECT_EQ(limits.Add(User(1)), std::nullopt);
  EXPECT_THAT(limits.Add(User(1)), Optional(Refusal::kMaxConnectionsPerClient));
  EXPECT_EQ(limits.Add(User(2)), std::nullopt);
  EXPECT_EQ(limits.open(User(1)), 2);
  EXPECT_EQ(limits.open(User(2)), 1);
  limits.Remove(User(1));
  EXPECT_EQ(limits.Add(User(1)), std::nullopt);
}

// Whoever has all of its own is not told that others are to blame.
TEST(ConnectionLimits, SayWhoseLimitItIs) {
  ConnectionLimits limits(2, 1);
  EXPECT_EQ(limits.Add(User(1)), std::nullopt);
  EXPECT_EQ(limits.Add(User(2)), std::nullopt);
  EXPECT_THAT(limits.Add(User(1)), Optional(Refusal::kMaxConnectionsPerClient));
  EXPECT_THAT(limits.Add(User(3)), Optional(Refusal::kMaxConnections));
}

TEST(ConnectionLimits, CountOnlyWhatWasAdmitted) {
  ConnectionLimits limits(1, 1);
  limits.Remove(User(1));
  EXPECT_EQ(limits.open(), 0);
  EXPECT_EQ(limits.Add(User(1)), std::nullopt);
  EXPECT_TRUE(limits.Add(User(1)).has_value());
  EXPECT_TRUE(limits.Add(User(2)).has_value());
  limits.Remove(User(2));
  EXPECT_EQ(limits.open(), 1);
  limits.Remove(User(1));
  EXPECT_EQ(limits.open(), 0);
  EXPECT_EQ(limits.Add(User(2)), std::nullopt);
}

}  // namespace
}  // namespace attnd::server
