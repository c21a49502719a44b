#ifndef ATTND_TESTS_CLIENT_TLS_WAYS_H_
#define ATTND_TESTS_CLIENT_TLS_WAYS_H_

#include <gtest/gtest.h>

#include <string>

#include "attnd/tls_guard.h"

namespace attnd::client {

// Clients' TLS is gRPC's in the one half of tests, and beneath gRPC in the
// other.
class TlsWays : public ::testing::TestWithParam<bool> {
 protected:
  TlsWays() { EXPECT_TRUE(UseTlsGuard(GetParam())); }
  ~TlsWays() override { UseTlsGuard(false); }
};

inline std::string NameOfTlsWay(const ::testing::TestParamInfo<bool>& way) {
  return way.param ? "BeneathGrpc" : "ByGrpc";
}

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_TLS_WAYS_H_
