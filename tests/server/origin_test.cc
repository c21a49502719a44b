#include "server/net/origin.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>
#include <string>

namespace attnd::server {
namespace {

Origin Of(const std::string& address) {
  sockaddr_storage peer = {};
  sockaddr_in v4 = {};
  if (inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(1234);
    std::memcpy(&peer, &v4, sizeof(v4));
    return OriginOf(peer);
  }
  sockaddr_in6 v6 = {};
  EXPECT_EQ(inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr), 1) << address;
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(1234);
  std::memcpy(&peer, &v6, sizeof(v6));
  return OriginOf(peer);
}

TEST(Origin, IsAnAddressOfIPv4) {
  EXPECT_EQ(Of("10.0.0.7"), Of("10.0.0.7"));
  EXPECT_NE(Of("10.0.0.7"), Of("10.0.0.8"));
  EXPECT_NE(Of("10.0.0.7"), Of("7.0.0.10"));
  EXPECT_EQ(ToString(Of("10.0.0.7")), "10.0.0.7");
}

TEST(Origin, IsAMappedAddressAsItIsInIPv4) {
  EXPECT_EQ(Of("::ffff:10.0.0.7"), Of("10.0.0.7"));
  EXPECT_NE(Of("::ffff:10.0.0.8"), Of("10.0.0.7"));
}

TEST(Origin, IsANetworkOf64BitsOfIPv6) {
  EXPECT_EQ(Of("2001:db8:0:7::1"), Of("2001:db8:0:7:ffff:ffff:ffff:ffff"));
  EXPECT_NE(Of("2001:db8:0:7::1"), Of("2001:db8:0:8::1"));
  EXPECT_NE(Of("2001:db8:0:7::1"), Of("2001:db9:0:7::1"));
  EXPECT_EQ(ToString(Of("2001:db8:0:7::1")), "2001:db8:0:7::/64");
  EXPECT_EQ(ToString(Of("::1")), "::/64");
}

TEST(Origin, IsAUserOnAUnixSocket) {
  EXPECT_EQ(UserOrigin(1000), UserOrigin(1000));
  EXPECT_NE(UserOrigin(1000), UserOrigin(1001));
  EXPECT_EQ(ToString(UserOrigin(1000)), "user 1000");
}

TEST(Origin, OfOneKindIsNoneOfAnother) {
  EXPECT_NE(UserOrigin(0x0a000007), Of("10.0.0.7"));
  EXPECT_NE(Of("0.0.0.0"), Of("::1"));
  EXPECT_EQ(OriginOf({}), Origin());
  EXPECT_NE(Origin(), UserOrigin(0));
  EXPECT_EQ(ToString(Origin()), "an unknown address");
}

}  // namespace
}  // namespace attnd::server
