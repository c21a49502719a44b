#include "base/errno_of_connect.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "absl/synchronization/mutex.h"

namespace attnd {
namespace {

// Where nothing has been kept, it is ENOENT afterwards, the first time in a
// process and on most systems.
TEST(ErrnoOfConnect, IsLeftAloneByAWaitBehindAnotherThread) {
  KeepErrnoOfConnect();
  absl::Mutex mutex;
  std::atomic<bool> first_waits = false, second_waits = false, done = false;
  const auto is_set = [](std::atomic<bool>* flag) { return flag->load(); };
  std::thread first([&] {
    mutex.Lock();
    first_waits = true;
    mutex.Await(absl::Condition(+is_set, &done));
    mutex.Unlock();
  });
  // To try for the lock is no wait, and it is free once who has it waits.
  const auto lock_after = [&](const std::atomic<bool>& waits) {
    while (!waits || !mutex.TryLock()) std::this_thread::yield();
  };
  std::thread waker([&] {
    lock_after(second_waits);
    done = true;
    mutex.Unlock();
  });
  lock_after(first_waits);
  errno = 0;
  second_waits = true;
  mutex.Await(absl::Condition(+is_set, &done));
  EXPECT_NE(errno, ENOENT);
  mutex.Unlock();
  first.join();
  waker.join();
}

TEST(ErrnoOfConnect, MayBeKeptByManyThreadsAtOnce) {
  std::thread threads[8];
  for (std::thread& thread : threads) thread = std::thread(KeepErrnoOfConnect);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace attnd
