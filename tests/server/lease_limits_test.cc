#include "server/region/lease_limits.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/clock.h"

namespace attnd::server {
namespace {

using Held = std::shared_ptr<LeaseLimits::Held>;

class LeaseLimitsTest : public ::testing::Test {
 protected:
  void Start(int64_t host_bytes, int64_t device_bytes) {
    limits_ = LeaseLimits::Create(options_, host_bytes, device_bytes);
  }
  // Null, and why_ says why.
  Held Hold(RegionKind kind, uid_t user, int64_t bytes) {
    auto held = limits_->TryHold(kind, user, bytes, now_);
    if (const auto* why = std::get_if<RegionRefusal>(&held)) {
      why_ = *why;
      return nullptr;
    }
    return std::get<Held>(std::move(held));
  }

  RegionOptions options_;
  std::shared_ptr<LeaseLimits> limits_;
  absl::Time now_ = MonotonicNow();
  RegionRefusal why_ = RegionRefusal::kRequest;
};

TEST_F(LeaseLimitsTest, CountsTheRegionsOfAUser) {
  options_.max_leases_per_user = 2;
  Start(1000, 1000);
  Held a = Hold(RegionKind::kHost, 1, 1), b = Hold(RegionKind::kHost, 1, 1);
  EXPECT_EQ(Hold(RegionKind::kHost, 1, 1), nullptr);
  EXPECT_EQ(why_, RegionRefusal::kLimitOfUser);
  EXPECT_NE(Hold(RegionKind::kHost, 2, 1), nullptr);
  EXPECT_NE(Hold(RegionKind::kDevice, 1, 1), nullptr);
  EXPECT_EQ(limits_->held(RegionKind::kHost).count, 2);
  a = nullptr;
  EXPECT_NE(Hold(RegionKind::kHost, 1, 1), nullptr);
}

TEST_F(LeaseLimitsTest, CountsTheBytesOfAUser) {
  options_.memory_per_user_bytes = 100;
  Start(1000, 1000);
  const Held a = Hold(RegionKind::kHost, 1, 60);
  EXPECT_EQ(Hold(RegionKind::kHost, 1, 41), nullptr);
  EXPECT_EQ(why_, RegionRefusal::kLimitOfUser);
  const Held b = Hold(RegionKind::kHost, 1, 40);
  EXPECT_NE(b, nullptr);
  EXPECT_NE(Hold(RegionKind::kHost, 2, 100), nullptr);
  EXPECT_EQ(limits_->held(RegionKind::kHost).bytes, 100);
}

TEST_F(LeaseLimitsTest, LeavesOthersAShare) {
  Start(900, 900);
  std::vector<Held> held;
  while (Held one = Hold(RegionKind::kHost, 1, 10)) held.push_back(one);
  EXPECT_EQ(why_, RegionRefusal::kLimitOfUser);
  EXPECT_LT(held.size(), 90);
  EXPECT_NE(Hold(RegionKind::kHost, 2, 10), nullptr);
}

TEST_F(LeaseLimitsTest, SaysWhenThereIsNoMore) {
  Start(900, 100);
  const Held a = Hold(RegionKind::kDevice, 1, 60);
  EXPECT_EQ(Hold(RegionKind::kDevice, 2, 60), nullptr);
  EXPECT_EQ(why_, RegionRefusal::kMemory);
}

TEST_F(LeaseLimitsTest, ImportsComeNoFasterThanTheyMay) {
  options_.imports_per_second = 3;
  Start(900, 900);
  for (int second = 0; second < 3; ++second) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_NE(Hold(RegionKind::kDevice, 1, 1), nullptr);
    }
    EXPECT_EQ(Hold(RegionKind::kDevice, 1, 1), nullptr);
    EXPECT_EQ(why_, RegionRefusal::kRateOfImports);
    now_ += absl::Seconds(1);
  }
  // Not more for having waited long, nor at others' cost.
  now_ += absl::Hours(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(Hold(RegionKind::kDevice, 1, 1), nullptr);
  }
  EXPECT_EQ(Hold(RegionKind::kDevice, 1, 1), nullptr);
  EXPECT_NE(Hold(RegionKind::kDevice, 2, 1), nullptr);
  now_ += absl::Milliseconds(400);
  EXPECT_NE(Hold(RegionKind::kDevice, 1, 1), nullptr);
  EXPECT_EQ(Hold(RegionKind::kDevice, 1, 1), nullptr);
}

TEST_F(LeaseLimitsTest, ManyUsersComeAndGo) {
  options_.imports_per_second = 1;
  Start(900, 900);
  const Held kept = Hold(RegionKind::kDevice, 7, 1);
  for (uid_t user = 1000; user < 2000; ++user) {
    EXPECT_NE(Hold(RegionKind::kDevice, user, 1), nullptr);
    // Nobody is forgotten too early.
    EXPECT_EQ(Hold(RegionKind::kDevice, user, 1), nullptr);
    now_ += absl::Milliseconds(100);
  }
  EXPECT_EQ(limits_->held(RegionKind::kDevice).count, 1);
}

}  // namespace
}  // namespace attnd::server
