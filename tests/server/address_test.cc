#include "server/net/address.h"

#include <gtest/gtest.h>

namespace attnd::server {
namespace {

TEST(Address, LoopbackIsWhatAnAddressSays) {
  for (const char* host : {"127.0.0.1", "127.255.255.255", "127.0.0.0", "::1",
                           "[::1]", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1",
                           "[::ffff:127.9.9.9]", "localhost", "LocalHost"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"127.example.com",
                           "127.0.0.1.example.com",
                           "127.",
                           "127",
                           "127.1",
                           "127.0.0.1 ",
                           " 127.0.0.1",
                           "127.0.0.256",
                           "127.0.0.1:80",
                           "127.0.0.1/8",
                           "0127.0.0.1",
                           "128.0.0.1",
                           "1.127.0.0",
                           "0.0.0.0",
                           "::",
                           "::2",
                           "::127.0.0.1",
                           "::ffff:128.0.0.1",
                           "::1%lo",
                           "[::1",
                           "::1]",
                           "[[::1]]",
                           "[]",
                           "localhost.example.com",
                           "localhost.",
                           "xlocalhost",
                           "",
                           "unix:/tmp/socket"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(Address, BracketsAroundAnAddressMakeNoDifference) {
  EXPECT_EQ(BareHost("[::1]"), "::1");
  EXPECT_EQ(BareHost("::1"), "::1");
  EXPECT_EQ(BareHost("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(BareHost("[::1"), "[::1");
}

TEST(Address, HasBracketsAroundIPv6) {
  EXPECT_EQ(Address("127.0.0.1", 7411), "127.0.0.1:7411");
  EXPECT_EQ(Address("localhost", 0), "localhost:0");
  EXPECT_EQ(Address("::1", 80), "[::1]:80");
  EXPECT_EQ(Address("[::1]", 80), "[::1]:80");
}

TEST(Address, IsParsedAsItIsWritten) {
  for (const char* text : {"127.0.0.1:7411", "localhost:0", "[::1]:65535"}) {
    const std::optional<HostPort> address = ParseHostPort(text);
    ASSERT_TRUE(address.has_value()) << text;
    EXPECT_EQ(Address(address->host, address->port), text);
  }
}

TEST(Address, IsNoneWithoutAHostOrAPort) {
  for (const char* text : {"", ":", "host", "host:", ":80", "[]:80", "::1:80",
                           "[::1:80", "host:65536", "host:-1", "host:+1",
                           "host: 1", "host:1 ", "host:0x1", "host:99999999"}) {
    EXPECT_FALSE(ParseHostPort(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace attnd::server
