#include "client/loopback.h"

#include <gtest/gtest.h>

namespace attnd::client {
namespace {

TEST(LoopbackTest, AddressesOfThisHostAreLoopback) {
  for (const char* target :
       {"127.0.0.1:7411", "127.0.0.1", "127.255.3.4:1", "localhost:7411",
        "LocalHost", "[::1]:7411", "::1", "[::1]", "dns:localhost:1",
        "dns:///localhost:1", "dns:///127.0.0.1:1", "ipv4:127.0.0.1:1",
        "ipv4:127.0.0.1:1,127.0.0.2:1", "ipv6:[::1]:1", "ipv6:[::1]"}) {
    EXPECT_TRUE(IsLoopbackTarget(target)) << target;
  }
}

TEST(LoopbackTest, WhateverElseCouldLeadAnywhere) {
  for (const char* target : {"",
                             ":7411",
                             "10.0.0.1:7411",
                             "128.0.0.1:1",
                             "0.0.0.0:1",
                             "[::]:1",
                             "127.example.com:1",
                             "127.0.0.1.example.com:1",
                             "localhost.example:1",
                             "127.1:1",
                             "2130706433:1",
                             "0x7f.0.0.1:1",
                             "[::2]:1",
                             "[::1",
                             "[::ffff:10.0.0.1]:1",
                             "ipv4:127.0.0.1:1,10.0.0.1:1",
                             "ipv6:[::1]:1,[fe80::1]:1",
                             "ipv4:localhost:1",
                             "ipv4:",
                             "dns://10.0.0.1/localhost:1",
                             "dns:////localhost:1",
                             "xds:localhost",
                             "vsock:1:1",
                             "localhost:1,10.0.0.1:1,",
                             "localhost@10.0.0.1:1"}) {
    EXPECT_FALSE(IsLoopbackTarget(target)) << target;
  }
}

}  // namespace
}  // namespace attnd::client
