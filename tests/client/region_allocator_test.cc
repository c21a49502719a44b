#include "client/region_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace attnd::client {
namespace {

TEST(RegionAllocatorTest, TakesTheFirstRoomThatFits) {
  RegionAllocator allocator(2048);
  EXPECT_EQ(allocator.Allocate(1), 0);
  EXPECT_EQ(allocator.Allocate(257), 256);
  EXPECT_EQ(allocator.Allocate(256), 768);
  EXPECT_TRUE(allocator.Free(256));
  EXPECT_EQ(allocator.Allocate(513), 1024);
  EXPECT_EQ(allocator.Allocate(512), 256);
  EXPECT_EQ(allocator.Allocate(257), std::nullopt);
  EXPECT_EQ(allocator.Allocate(256), 1792);
  EXPECT_EQ(allocator.Allocate(1), std::nullopt);
}

TEST(RegionAllocatorTest, FreesOnlyWhatItGave) {
  RegionAllocator allocator(1024);
  EXPECT_EQ(allocator.Allocate(512), 0);
  EXPECT_FALSE(allocator.Free(256));
  EXPECT_FALSE(allocator.Free(512));
  EXPECT_TRUE(allocator.Free(0));
  EXPECT_FALSE(allocator.Free(0));
}

TEST(RegionAllocatorTest, ARegionNeedNotEndAtAMultiple) {
  RegionAllocator allocator(300);
  EXPECT_EQ(allocator.Allocate(256), 0);
  EXPECT_EQ(allocator.Allocate(45), std::nullopt);
  EXPECT_EQ(allocator.Allocate(44), 256);
  EXPECT_TRUE(allocator.Free(0));
  EXPECT_TRUE(allocator.Free(256));
  EXPECT_EQ(allocator.Allocate(300), 0);
}

// Random histories against a map of what each 256 bytes are.
TEST(RegionAllocatorTest, AgreesWithAModel) {
  std::mt19937 random(1);
  const auto below = [&](int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
  };
  for (int history = 0; history < 30; ++history) {
    const int64_t units = 1 + below(60);
    RegionAllocator allocator(units * kRegionAlignment);
    std::vector<bool> taken(units);
    std::map<int64_t, int64_t> given;  // units by their first
    for (int step = 0; step < 300; ++step) {
      if (!given.empty() && below(2) == 0) {
        auto freed = std::next(given.begin(), below(given.size()));
        ASSERT_TRUE(allocator.Free(freed->first * kRegionAlignment));
        std::fill_n(taken.begin() + freed->first, freed->second, false);
        given.erase(freed);
        continue;
      }
      const int64_t bytes = 1 + below(12 * kRegionAlignment);
      const int64_t need = (bytes + kRegionAlignment - 1) / kRegionAlignment;
      const std::vector<bool> room(need, false);
      const auto fits =
          std::search(taken.begin(), taken.end(), room.begin(), room.end());
      const std::optional<int64_t> got = allocator.Allocate(bytes);
      if (fits == taken.end()) {
        ASSERT_EQ(got, std::nullopt);
        continue;
      }
      const int64_t first = fits - taken.begin();
      ASSERT_EQ(got, first * kRegionAlignment);
      std::fill_n(fits, need, true);
      given[first] = need;
    }
    for (const auto& [first, count] : given) {
      ASSERT_TRUE(allocator.Free(first * kRegionAlignment));
    }
    EXPECT_EQ(allocator.Allocate(units * kRegionAlignment), 0);
  }
}

}  // namespace
}  // namespace attnd::client
