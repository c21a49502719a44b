#include "server/region/keeper.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/notification.h"

namespace attnd::server {
namespace {

std::shared_ptr<Keeper> NewKeeper() {
  auto keeper = Keeper::Start();
  EXPECT_TRUE(keeper.ok()) << keeper.status();
  return *std::move(keeper);
}

TEST(Keeper, RunsWhatIsPostedInOrderAndBeforeWhatIsDue) {
  const auto keeper = NewKeeper();
  Notification begun, go_on;
  std::vector<int> ran;
  keeper->Post([&] {
    begun.Notify();
    go_on.WaitForNotification();
  });
  begun.WaitForNotification();
  Notification last;
  keeper->PostAt(MonotonicNow(), [&] {
    ran.push_back(3);
    last.Notify();
  });
  keeper->Post([&] { ran.push_back(1); });
  keeper->Post([&] { ran.push_back(2); });
  go_on.Notify();
  last.WaitForNotification();
  EXPECT_EQ(ran, std::vector<int>({1, 2, 3}));
}

TEST(Keeper, WaitsForTheTimeOfATask) {
  const auto keeper = NewKeeper();
  const absl::Time due = MonotonicNow() + absl::Milliseconds(20);
  Notification ran;
  keeper->PostAt(due, [&] { ran.Notify(); });
  ran.WaitForNotification();
  EXPECT_GE(MonotonicNow(), due);
}

TEST(Keeper, StopsAfterWhatIsPostedAndDropsTheRest) {
  const auto keeper = NewKeeper();
  auto kept = std::make_shared<int>(0);
  bool is_late = false;
  keeper->PostAt(MonotonicNow() + absl::Hours(1), [kept] { ++*kept; });
  keeper->Post([&] {
    // Of a task that runs at the end.
    keeper->Post([&] { is_late = true; });
    keeper->PostAt(MonotonicNow(), [kept] { ++*kept; });
  });
  keeper->Stop();
  EXPECT_TRUE(is_late);
  EXPECT_EQ(kept.use_count(), 1);
  // From then on, on the thread that posts.
  std::thread::id ran_on;
  keeper->Post([&] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  keeper->Stop();
}

}  // namespace
}  // namespace attnd::server
