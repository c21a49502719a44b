#include "proto/wire/grpc_process.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"

namespace attnd::wire {
namespace {

void IsSetUnlessTheUserHas(const char* name, const char* value,
                           const char* users) {
  unsetenv(name);
  PrepareForGrpc();
  EXPECT_STREQ(std::getenv(name), value);
  setenv(name, users, /*overwrite=*/1);
  PrepareForGrpc();
  EXPECT_STREQ(std::getenv(name), users);
  unsetenv(name);
}

TEST(GrpcProcessTest, PollsByQueueUnlessTheUserHasSaidHow) {
  IsSetUnlessTheUserHas("GRPC_POLL_STRATEGY", "poll", "epoll1");
}

TEST(GrpcProcessTest, LooksAtConnectionsOftenUnlessTheUserHasSaidWhen) {
  IsSetUnlessTheUserHas("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100",
                        "5000");
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
