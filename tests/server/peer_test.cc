#include "server/identity/peer.h"

#include <gtest/gtest.h>

namespace attnd::server {
namespace {

TEST(ClientOf, LeavesOutThePort) {
  EXPECT_EQ(ClientOf("ipv4:10.0.0.7:5123"), "ipv4:10.0.0.7");
  EXPECT_EQ(ClientOf("ipv4:10.0.0.7:5124"), "ipv4:10.0.0.7");
  EXPECT_EQ(ClientOf("ipv6:%5B::1%5D:80"), "ipv6:%5B::1%5D");
  EXPECT_EQ(ClientOf("ipv6:[fe80::2]:80"), "ipv6:[fe80::2]");
}

TEST(ClientOf, EveryUnixPeerIsOneClient) {
  EXPECT_EQ(ClientOf("unix:"), "unix");
  EXPECT_EQ(ClientOf("unix:/run/attnd.sock"), "unix");
  EXPECT_EQ(ClientOf("unix-abstract:x"), "unix");
}

TEST(ClientOf, PassesOnWhatItDoesNotKnow) {
  EXPECT_EQ(ClientOf(""), "");
  EXPECT_EQ(ClientOf("unknown"), "unknown");
}

}  // namespace
}  // namespace attnd::server
