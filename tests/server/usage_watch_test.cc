#include "server/telemetry/usage_watch.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "tests/hang_limit.h"
#include "tests/server/fakes/identity_backend.h"

namespace attnd::server {
namespace {

using attnd::testing::Eventually;

// A device that can tell, and whose driver may come to a halt.
class Telling final : public IdentityBackend {
 public:
  std::optional<DeviceUsage> Usage() const override {
    MutexLock lock(mutex_);
    ++asked_;
    answers_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !halted_;
    });
    return DeviceUsage{0.25, 10, 20};
  }
  void Halt(bool halted) {
    MutexLock lock(mutex_);
    halted_ = halted;
    answers_.NotifyAll();
  }
  int asked() const {
    MutexLock lock(mutex_);
    return asked_;
  }

 private:
  mutable Mutex mutex_;
  mutable Condition answers_;
  mutable int asked_ ABSL_GUARDED_BY(mutex_) = 0;
  bool halted_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST(UsageWatchTest, SaysWhatEachDeviceSays) {
  const IdentityBackend silent;
  const Telling telling;
  const auto watch = UsageWatch::Start({&silent, &telling});
  ASSERT_TRUE(watch.ok()) << watch.status();
  ASSERT_TRUE(Eventually(
      [&] { return (*watch)->usage(MonotonicNow()).at(1).has_value(); }));
  const auto usage = (*watch)->usage(MonotonicNow());
  ASSERT_EQ(usage.size(), 2);
  EXPECT_FALSE(usage[0].has_value());
  EXPECT_EQ(usage[1]->utilization, 0.25);
  EXPECT_EQ(usage[1]->memory_used_bytes, 10);
}

// Nobody waits for a driver that does not answer, and what it said last counts
// for a while.
TEST(UsageWatchTest, ADriverThatHaltsHoldsNobodyUp) {
  Telling device;
  const auto watch = UsageWatch::Start({&device});
  ASSERT_TRUE(watch.ok()) << watch.status();
  absl::Time now;
  ASSERT_TRUE(Eventually([&] {
    now = MonotonicNow();
    return (*watch)->usage(now).at(0).has_value();
  }));
  const int asked = device.asked();
  device.Halt(true);
  ASSERT_TRUE(Eventually([&] { return device.asked() > asked; }));
  EXPECT_TRUE((*watch)->usage(now).at(0).has_value());
  EXPECT_FALSE(
      (*watch)->usage(now + 2 * UsageWatch::kGoodFor).at(0).has_value());
  device.Halt(false);
}

TEST(UsageWatchTest, IsNoneWhereNoDeviceCanTell) {
  const IdentityBackend silent;
  const auto watch = UsageWatch::Start({&silent});
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_FALSE((*watch)->usage(MonotonicNow()).at(0).has_value());
}

}  // namespace
}  // namespace attnd::server
