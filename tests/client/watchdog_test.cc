#include "client/watchdog.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/client/manual_executor.h"

namespace attnd::client {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(4);

class Thing final : public Watched {
 public:
  explicit Thing(absl::Time due) : due_(due) {}
  absl::Time due() const override { return due_; }
  void Break() override { ++broken; }

  void set_due(absl::Time due) { due_ = due; }
  int broken = 0;

 private:
  absl::Time due_;
};

class WatchdogTest : public ::testing::Test {
 protected:
  std::shared_ptr<Thing> Watch(absl::Duration due_in) {
    auto thing = std::make_shared<Thing>(executor_.Now() + due_in);
    watchdog_.Watch(thing);
    return thing;
  }

  ManualExecutor executor_;
  Watchdog watchdog_{executor_, kGrace};
};

TEST_F(WatchdogTest, BreaksOnceWhatIsStillThereAGraceAfterItWasDue) {
  const auto thing = Watch(absl::Seconds(10));
  executor_.Advance(absl::Seconds(13));
  EXPECT_EQ(thing->broken, 0);
  // A quarter of the grace later at most.
  executor_.Advance(absl::Seconds(2));
  EXPECT_EQ(thing->broken, 1);
  executor_.Advance(absl::Seconds(100));
  EXPECT_EQ(thing->broken, 1);
}

TEST_F(WatchdogTest, LeavesAloneWhatIsNeverDue) {
  const auto thing = Watch(absl::InfiniteDuration());
  executor_.Advance(absl::Hours(1));
  EXPECT_EQ(thing->broken, 0);
}

TEST_F(WatchdogTest, SeesThatSomethingIsDueEarlier) {
  const auto thing = Watch(absl::InfiniteDuration());
  executor_.Advance(absl::Seconds(60));
  thing->set_due(executor_.Now());
  executor_.Advance(kGrace + kGrace / 4);
  EXPECT_EQ(thing->broken, 1);
}

TEST_F(WatchdogTest, LooksOnlyWhileThereIsSomethingToWatch) {
  EXPECT_EQ(executor_.timers(), 0);
  auto first = Watch(absl::Seconds(1));
  auto second = Watch(absl::Seconds(1));
  EXPECT_EQ(executor_.timers(), 1);
  first.reset();
  executor_.Advance(kGrace / 4);
  EXPECT_EQ(executor_.timers(), 1);
  second.reset();
  // So soon, as what has gone keeps its memory until then.
  executor_.Advance(absl::Milliseconds(250));
  EXPECT_EQ(executor_.timers(), 0);
  // And again.
  const auto third = Watch(absl::ZeroDuration());
  executor_.Advance(kGrace);
  EXPECT_EQ(third->broken, 1);
}

TEST_F(WatchdogTest, BreaksNoneButTheOverdue) {
  const auto soon = Watch(absl::Seconds(1));
  const auto later = Watch(absl::Seconds(10));
  executor_.Advance(absl::Seconds(6));
  EXPECT_EQ(soon->broken, 1);
  EXPECT_EQ(later->broken, 0);
  executor_.Advance(absl::Seconds(9));
  EXPECT_EQ(later->broken, 1);
}

}  // namespace
}  // namespace attnd::client
