#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/clock.h"

namespace attnd {
namespace {

struct Counter {
  Mutex mutex;
  Condition changed;
  int count ABSL_GUARDED_BY(mutex) = 0;
};

TEST(Mutex, KeepsThreadsApart) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counter] {
      for (int j = 0; j < 1000; ++j) {
        MutexLock lock(counter.mutex);
        ++counter.count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.count, 4000);
}

TEST(Condition, WaitsForWhatAnotherThreadDoesUnderTheLock) {
  Counter counter;
  std::thread other;
  {
    // The other thread cannot count before this one waits.
    MutexLock lock(counter.mutex);
    other = std::thread([&counter] {
      MutexLock lock(counter.mutex);
      counter.count = 1;
      counter.changed.NotifyAll();
    });
    counter.changed.Wait(
        lock, [&counter]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(counter.mutex) {
          return counter.count == 1;
        });
    EXPECT_EQ(counter.count, 1);
  }
  other.join();
}

TEST(Condition, GivesUpAtTheDeadlineAndSaysSo) {
  Counter counter;
  MutexLock lock(counter.mutex);
  EXPECT_FALSE(
      counter.changed.WaitUntil(lock, MonotonicNow(), [] { return false; }));
  EXPECT_TRUE(
      counter.changed.WaitUntil(lock, MonotonicNow(), [] { return true; }));
}

TEST(Condition, WaitsForANotificationNoLongerThanTheDeadline) {
  Counter counter;
  std::thread other;
  {
    MutexLock lock(counter.mutex);
    const absl::Time deadline = MonotonicNow() + absl::Milliseconds(1);
    while (MonotonicNow() < deadline) counter.changed.WaitUntil(lock, deadline);
    other = std::thread([&counter] {
      MutexLock lock(counter.mutex);
      counter.count = 1;
      counter.changed.NotifyAll();
    });
    while (counter.count == 0) {
      counter.changed.WaitUntil(lock, absl::InfiniteFuture());
    }
  }
  other.join();
}

TEST(Condition, WaitsWithoutADeadlineForever) {
  Counter counter;
  std::thread other;
  MutexLock lock(counter.mutex);
  other = std::thread([&counter] {
    MutexLock lock(counter.mutex);
    counter.count = 1;
    counter.changed.NotifyOne();
  });
  EXPECT_TRUE(counter.changed.WaitUntil(
      lock, absl::InfiniteFuture(),
      [&counter]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(counter.mutex) {
        return counter.count == 1;
      }));
  lock.Unlock();
  other.join();
}

}  // namespace
}  // namespace attnd
