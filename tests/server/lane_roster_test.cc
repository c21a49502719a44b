#include "server/scheduling/lane_roster.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/fakes/test_work.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;

const absl::Time kNow = absl::UnixEpoch();

// A roster whose lanes are all idle.
class LaneRosterTest : public ::testing::Test {
 protected:
  static constexpr int kDevices = 2;
  static constexpr int kLanes = 2;  // of each

  LaneRosterTest() {
    for (int i = 0; i < kDevices * kLanes; ++i) Idle(i);
  }
  void Idle(int lane) {
    roster_.Borrow(roster_.at(lane));
    roster_.Return(roster_.at(lane), /*wanted=*/false);
  }
  void Run(int lane, const WorkPtr& work, double cost, absl::Time at) {
    WorkQueue::Group group;
    group.works = {work};
    group.cost = cost;
    roster_.Start(roster_.at(lane), group, at);
  }

  LaneRoster::Entry* Wake(bool small, uint64_t devices) {
    Kind kind;
    kind.small = small;
    kind.devices = devices;
    return roster_.Wake(kind);
  }

  LaneRoster roster_{kDevices, kLanes};
  TestWork test_{{}};
};

TEST_F(LaneRosterTest, TheFirstLaneOfEachDeviceIsForSmallRequests) {
  std::vector<std::pair<int, bool>> lanes;
  for (int i = 0; i < kDevices * kLanes; ++i) {
    lanes.emplace_back(roster_.at(i).device(),
                       roster_.Filter(roster_.at(i)).small_only);
  }
  EXPECT_THAT(lanes, ElementsAre(std::pair(0, true), std::pair(0, false),
                                 std::pair(1, true), std::pair(1, false)));
}

TEST_F(LaneRosterTest, CountsTheTimeThatLanesAreBusy) {
  Run(0, test_.work(), 1, kNow);
  Run(1, test_.work(), 1, kNow + absl::Seconds(1));
  LaneStats stats = roster_.stats(0, kNow + absl::Seconds(3));
  EXPECT_EQ(stats.lanes, kLanes);
  EXPECT_EQ(stats.busy, 2);
  EXPECT_EQ(stats.busy_time, absl::Seconds(3 + 2));
  EXPECT_EQ(stats.longest, absl::Seconds(3));
  roster_.Finish(roster_.at(0), kNow + absl::Seconds(4));
  // A lane that had nothing was not busy.
  roster_.Finish(roster_.at(0), kNow + absl::Seconds(100));
  stats = roster_.stats(0, kNow + absl::Seconds(5));
  EXPECT_EQ(stats.busy, 1);
  EXPECT_EQ(stats.busy_time, absl::Seconds(4 + 4));
  EXPECT_EQ(stats.longest, absl::Seconds(4));
  stats = roster_.stats(1, kNow + absl::Seconds(5));
  EXPECT_EQ(stats.busy, 0);
  EXPECT_EQ(stats.busy_time, absl::ZeroDuration());
  EXPECT_EQ(stats.longest, absl::ZeroDuration());
}

TEST_F(LaneRosterTest, WakesEachIdleLaneOnce) {
  EXPECT_EQ(Wake(/*small=*/false, /*devices=*/3), &roster_.at(1));
  EXPECT_EQ(Wake(false, 3), &roster_.at(3));
  EXPECT_EQ(Wake(false, 3), nullptr);
  EXPECT_EQ(Wake(/*small=*/true, /*devices=*/2), &roster_.at(2));
  EXPECT_EQ(Wake(true, 2), nullptr);
  EXPECT_EQ(Wake(true, 3), &roster_.at(0));
}

TEST_F(LaneRosterTest, ALaneThatIsWantedComesBackWoken) {
  LaneRoster::Entry* lane = Wake(false, 1);
  ASSERT_EQ(lane, &roster_.at(1));
  roster_.Borrow(*lane);
  roster_.Return(*lane, /*wanted=*/true);
  EXPECT_EQ(Wake(false, 1), nullptr);
}

TEST_F(LaneRosterTest, LanesOfADeviceOutOfServiceAreNeverIdle) {
  EXPECT_TRUE(roster_.TakeOutOfService(0));
  EXPECT_FALSE(roster_.TakeOutOfService(0));
  EXPECT_EQ(roster_.in_service(), 2);
  EXPECT_FALSE(roster_.InService(roster_.at(1)));
  EXPECT_TRUE(roster_.InService(roster_.at(2)));
  Idle(1);
  EXPECT_EQ(Wake(false, 1), nullptr);
}

TEST_F(LaneRosterTest, ReturnsWhatALaneRan) {
  Run(1, test_.work(), 1, kNow);
  int running = 0;
  roster_.ForEachRunning([&](Work& work) {
    EXPECT_EQ(&work, test_.work().get());
    ++running;
  });
  EXPECT_EQ(running, 1);
  EXPECT_THAT(roster_.Finish(roster_.at(1), kNow), ElementsAre(test_.work()));
  EXPECT_THAT(roster_.Finish(roster_.at(1), kNow), ElementsAre());
}

TEST_F(LaneRosterTest, WhoFindsNoRoomWaitsForAllThatWaitsAndRuns) {
  // One lane does 1e9 a second.
  Run(0, test_.work(), 1e9, kNow);
  roster_.Finish(roster_.at(0), kNow + absl::Seconds(1));
  EXPECT_EQ(roster_.RetryDelay(4e9), absl::Seconds(1));
  Run(3, test_.work(), 4e9, kNow);
  EXPECT_EQ(roster_.RetryDelay(4e9), absl::Seconds(2));
  roster_.TakeOutOfService(0);
  EXPECT_EQ(roster_.RetryDelay(4e9), absl::Seconds(4));
}

}  // namespace
}  // namespace attnd::server
