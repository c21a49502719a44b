#include "proto/wire/grpc_process.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"

namespace attnd::wire {
namespace {

constexpr char kName[] = "GRPC_POLL_STRATEGY";

TEST(GrpcProcessTest, PollsByQueueUnlessTheUserHasSaidHow) {
  unsetenv(kName);
  PrepareForGrpc();
  EXPECT_STREQ(std::getenv(kName), "poll");
  setenv(kName, "epoll1", /*overwrite=*/1);
  PrepareForGrpc();
  EXPECT_STREQ(std::getenv(kName), "epoll1");
  unsetenv(kName);
}

#ifdef NDEBUG
TEST(GrpcProcessTest, LocksAreNotSearchedForDeadlocks) {
  PrepareForGrpc();
  absl::Mutex a, b;
  {
    absl::MutexLock first(&a);
    absl::MutexLock second(&b);
  }
  // The search would end the process here.
  absl::MutexLock second(&b);
  absl::MutexLock first(&a);
}
#endif

}  // namespace
}  // namespace attnd::wire
