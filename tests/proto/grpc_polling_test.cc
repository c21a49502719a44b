#include "proto/wire/grpc_polling.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace attnd::wire {
namespace {

constexpr char kName[] = "GRPC_POLL_STRATEGY";

TEST(GrpcPollingTest, IsSetUnlessTheUserHas) {
  unsetenv(kName);
  PollByQueue();
  EXPECT_STREQ(std::getenv(kName), "poll");
  setenv(kName, "epoll1", /*overwrite=*/1);
  PollByQueue();
  EXPECT_STREQ(std::getenv(kName), "epoll1");
  unsetenv(kName);
}

}  // namespace
}  // namespace attnd::wire
