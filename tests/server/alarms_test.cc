#include "server/transfer/alarms.h"

#include <atomic>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "tests/notification.h"

namespace attnd::server {
namespace {

TEST(Alarms, RingInTheOrderOfTheirTimes) {
  std::vector<int> rung;
  Notification last;
  Alarms alarms;
  const absl::Time now = MonotonicNow();
  alarms.Set(now + absl::Milliseconds(20), [&] {
    rung.push_back(2);
    last.Notify();
  });
  alarms.Set(now + absl::Milliseconds(10), [&] { rung.push_back(1); });
  last.WaitForNotification();
  EXPECT_EQ(rung, std::vector<int>({1, 2}));
  EXPECT_GE(MonotonicNow(), now + absl::Milliseconds(20));
}

TEST(Alarms, ACancelledOneDoesNotRing) {
  std::atomic<bool> rung = false;
  Notification later;
  Alarms alarms;
  const absl::Time due = MonotonicNow() + absl::Milliseconds(5);
  const Alarms::Id id = alarms.Set(due, [&] { rung = true; });
  alarms.Cancel(id);
  alarms.Cancel(id);
  alarms.Cancel({});
  alarms.Set(due, [&] { later.Notify(); });
  later.WaitForNotification();
  EXPECT_FALSE(rung);
}

TEST(Alarms, OneThatRingsMaySetAndCancel) {
  Notification rung;
  Alarms alarms;
  Alarms::Id first;
  first = alarms.Set(MonotonicNow() + absl::Milliseconds(1), [&] {
    alarms.Cancel(first);
    alarms.Set(MonotonicNow(), [&] { rung.Notify(); });
  });
  rung.WaitForNotification();
}

TEST(Alarms, WhatHasNotRungIsDroppedAtTheEnd) {
  auto kept = std::make_shared<int>(0);
  {
    Alarms alarms;
    alarms.Set(MonotonicNow() + absl::Hours(1), [kept] { ++*kept; });
    EXPECT_EQ(kept.use_count(), 2);
  }
  EXPECT_EQ(kept.use_count(), 1);
  EXPECT_EQ(*kept, 0);
}

}  // namespace
}  // namespace attnd::server
