#include "server/net/connection_table.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "tests/server/socket_pairs.h"

namespace attnd::server {
namespace {

using ::testing::Optional;

const Origin kOne = UserOrigin(1), kOther = UserOrigin(2);

class ConnectionTableTest : public ::testing::Test {
 protected:
  // Far enough apart for the table to look each time.
  absl::Time Later() { return now_ += absl::Seconds(1); }

  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(ConnectionTableTest, WhatIsClosedMakesRoom) {
  ConnectionTable table(2, 2);
  SocketPair first = UnixPair();
  const SocketPair second = UnixPair(), third = UnixPair();
  EXPECT_EQ(table.Add(first.server.get(), kOne, Later()), std::nullopt);
  EXPECT_EQ(table.Add(second.server.get(), kOther, Later()), std::nullopt);
  EXPECT_THAT(table.Add(third.server.get(), kOne, Later()),
              Optional(Refusal::kMaxConnections));
  first.server = Descriptor();
  EXPECT_EQ(table.Add(third.server.get(), kOne, Later()), std::nullopt);
  const ConnectionStats stats = table.stats();
  EXPECT_EQ(stats.open, 2);
  EXPECT_EQ(stats.accepted, 3);
  EXPECT_THAT(stats.refused, ::testing::ElementsAre(1, 0, 0));
}

// Its peer's end frees nothing here: its owner may still have calls on it.
TEST_F(ConnectionTableTest, CountsUntilItsOwnerClosesIt) {
  ConnectionTable table(10, 10);
  SocketPair pair = UnixPair();
  ASSERT_EQ(table.Add(pair.server.get(), kOne, Later()), std::nullopt);
  shutdown(pair.client.get(), SHUT_WR);
  EXPECT_EQ(table.stats().open, 1);
  pair.client = Descriptor();
  EXPECT_EQ(table.stats().open, 1);
  shutdown(pair.server.get(), SHUT_RDWR);
  EXPECT_EQ(table.stats().open, 1);
  pair.server = Descriptor();
  EXPECT_EQ(table.stats().open, 0);
}

TEST_F(ConnectionTableTest, ANumberThatIsGivenAgainIsAnotherConnection) {
  ConnectionTable table(1, 1);
  SocketPair pair = UnixPair();
  const int number = pair.server.get();
  ASSERT_EQ(table.Add(number, kOne, Later()), std::nullopt);
  const SocketPair next = UnixPair();
  pair.server = Descriptor();
  ASSERT_EQ(dup2(next.server.get(), number), number);
  const Descriptor again(number);
  EXPECT_EQ(table.Add(number, kOther, now_), std::nullopt);
  EXPECT_EQ(table.stats().open, 1);
  // The first one's place is free.
  EXPECT_THAT(table.Add(next.server.get(), kOther, Later()),
              Optional(Refusal::kMaxConnectionsPerClient));
  EXPECT_THAT(table.Add(next.server.get(), kOne, Later()),
              Optional(Refusal::kMaxConnections));
}

TEST_F(ConnectionTableTest, ANumberThatStandsForAnotherFileHasEnded) {
  ConnectionTable table(10, 10);
  SocketPair pair = UnixPair();
  const int number = pair.server.get();
  ASSERT_EQ(table.Add(number, kOne, Later()), std::nullopt);
  const Descriptor file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  pair.server = Descriptor();
  ASSERT_EQ(dup2(file.get(), number), number);
  const Descriptor again(number);
  EXPECT_EQ(table.stats().open, 0);
}

// A flood of refusals leaves time for other things.
TEST_F(ConnectionTableTest, DoesNotLookEachTimeItRefuses) {
  constexpr int kMost = 100;
  ConnectionTable table(kMost, kMost);
  std::vector<SocketPair> pairs(kMost);
  for (SocketPair& pair : pairs) {
    pair = UnixPair();
    ASSERT_EQ(table.Add(pair.server.get(), kOne, now_), std::nullopt);
  }
  const SocketPair late = UnixPair();
  EXPECT_TRUE(table.Add(late.server.get(), kOther, now_).has_value());
  pairs.clear();
  EXPECT_TRUE(table.Add(late.server.get(), kOther, now_).has_value());
  // Milliseconds later it does.
  now_ += absl::Milliseconds(1);
  EXPECT_EQ(table.Add(late.server.get(), kOther, now_), std::nullopt);
}

TEST_F(ConnectionTableTest, KnowsThoseThatAreOpen) {
  ConnectionTable table(10, 10);
  SocketPair pair = UnixPair();
  const SocketPair other = UnixPair();
  const int number = pair.server.get();
  EXPECT_THAT(table.Open(), ::testing::IsEmpty());
  ASSERT_EQ(table.Add(number, kOne, Later()), std::nullopt);
  const SocketIdentity socket = SocketIdentity::Of(number).value();
  EXPECT_TRUE(table.Has(number, socket));
  EXPECT_FALSE(table.Has(other.server.get(), socket));
  EXPECT_FALSE(
      table.Has(number, SocketIdentity::Of(other.server.get()).value()));
  EXPECT_THAT(table.Open(), ::testing::ElementsAre(number));
  pair.server = Descriptor();
  EXPECT_THAT(table.Open(), ::testing::IsEmpty());
}

TEST_F(ConnectionTableTest, WhatIsNoDescriptorIsRefused) {
  ConnectionTable table(10, 10);
  EXPECT_THAT(table.Add(-1, kOne, Later()), Optional(Refusal::kNoDescriptor));
  table.CountRefused(Refusal::kNoDescriptor);
  EXPECT_THAT(table.stats().refused, ::testing::ElementsAre(0, 0, 2));
  EXPECT_EQ(table.stats().accepted, 0);
}

}  // namespace
}  // namespace attnd::server
