#include "client/tls_guard/target_host.h"

#include <gtest/gtest.h>

namespace attnd::client {
namespace {

TEST(TargetHostTest, IsWhatACertificateNames) {
  EXPECT_EQ(TargetHost("attnd.example:7411"), "attnd.example");
  EXPECT_EQ(TargetHost("127.0.0.1:7411"), "127.0.0.1");
  EXPECT_EQ(TargetHost("[::1]:7411"), "::1");
  EXPECT_EQ(TargetHost("dns:attnd.example:7411"), "attnd.example");
  EXPECT_EQ(TargetHost("dns:///attnd.example:7411"), "attnd.example");
}

TEST(TargetHostTest, IsNoneOfWhatItIsNotSureOf) {
  for (const char* target :
       {"", "attnd.example", ":7411", "host:", "host:https", "::1", "[::1]",
        "[fe80::1%eth0]:7411", "[::1:7411", "::1]:7411", "dns://a.resolver/h:1",
        "ipv4:127.0.0.1:7411", "ipv4:127.0.0.1:1,127.0.0.2:1", "unix:/path",
        "unix:/path:1", "xds:///host:1"}) {
    EXPECT_EQ(TargetHost(target), "") << target;
  }
}

}  // namespace
}  // namespace attnd::client
