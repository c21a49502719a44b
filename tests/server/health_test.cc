#include "server/front/health.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace attnd::server {
namespace {

class Counter final : public HealthWatcher {
 public:
  explicit Counter(const Health& health) : health_(health) {}
  void OnHealth() override { seen_.push_back(health_.serving()); }
  const std::vector<bool>& seen() const { return seen_; }

 private:
  const Health& health_;
  std::vector<bool> seen_;
};

TEST(Health, ServesFromTheStartToTheDrain) {
  Health health(1);
  EXPECT_FALSE(health.serving());
  EXPECT_EQ(health.Describe(), "starting");
  health.Started();
  EXPECT_TRUE(health.serving());
  EXPECT_EQ(health.Describe(), "serving");
  health.Draining();
  EXPECT_FALSE(health.serving());
  EXPECT_FALSE(health.ended());
  EXPECT_EQ(health.Describe(), "draining");
  health.Ended();
  EXPECT_TRUE(health.ended());
}

TEST(Health, ServesUntilItsLastDeviceHasLeft) {
  Health health(2);
  health.Started();
  health.DeviceLeft();
  EXPECT_TRUE(health.serving());
  health.DeviceLeft();
  EXPECT_FALSE(health.serving());
  EXPECT_EQ(health.Describe(), "no device is in service");
}

TEST(Health, TellsWhoeverWatchesOfEachChange) {
  Health health(1);
  const auto watcher = std::make_shared<Counter>(health);
  auto gone = std::make_shared<Counter>(health);
  const auto tired = std::make_shared<Counter>(health);
  health.Watch(watcher);
  health.Watch(gone);
  health.Watch(tired);
  gone = nullptr;
  health.Unwatch(*tired);
  health.Started();
  health.Draining();
  EXPECT_EQ(watcher->seen(), (std::vector<bool>{true, false}));
  EXPECT_TRUE(tired->seen().empty());
}

TEST(Health, KnowsAttentionAndTheServer) {
  EXPECT_TRUE(Health::Knows(""));
  EXPECT_TRUE(Health::Knows("attn.v1.AttentionService"));
  EXPECT_FALSE(Health::Knows("attn.v1"));
  EXPECT_FALSE(Health::Knows("grpc.health.v1.Health"));
}

}  // namespace
}  // namespace attnd::server
