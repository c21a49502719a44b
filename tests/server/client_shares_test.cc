#include "server/work/client_shares.h"

#include "gtest/gtest.h"

namespace attnd::server {
namespace {

// Adds ones until no more are allowed below the limit.
int Fill(ClientShares& shares, const std::string& client, int& held,
         int limit) {
  int added = 0;
  while (held < limit && shares.MayAdd(client)) {
    shares.Add(client, 1);
    ++held;
    ++added;
  }
  return added;
}

TEST(ClientSharesTest, WhoComesFirstLeavesRoomForTheNext) {
  ClientShares shares(900);
  int held = 0;
  EXPECT_EQ(Fill(shares, "first", held, 900), 801);
  EXPECT_GE(Fill(shares, "second", held, 900), 80);
  EXPECT_GE(Fill(shares, "third", held, 900), 8);
}

TEST(ClientSharesTest, AClientAloneFillsASmallLimit) {
  for (int limit = 1; limit <= 9; ++limit) {
    ClientShares shares(limit);
    int held = 0;
    EXPECT_EQ(Fill(shares, "a", held, limit), limit);
  }
}

TEST(ClientSharesTest, WhatIsRemovedIsFreeAgain) {
  ClientShares shares(90);
  int held = 0;
  const int first = Fill(shares, "a", held, 90);
  for (int i = 0; i < first; ++i) shares.Remove("a", 1);
  held = 0;
  EXPECT_EQ(Fill(shares, "b", held, 90), first);
}

}  // namespace
}  // namespace attnd::server
