#include "server/telemetry/line_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace attnd::server {
namespace {

constexpr char kFile[] = "file.cc";
constexpr size_t kLine = 200;

// Offers a line of each of `places` places every millisecond, `seconds` long;
// the bytes that got through at each time.
std::vector<size_t> Flood(LineLimit& limit, int places, int seconds) {
  std::vector<size_t> allowed;
  for (int ms = 0; ms < 1000 * seconds; ++ms) {
    const absl::Time now = absl::UnixEpoch() + absl::Milliseconds(ms);
    allowed.push_back(0);
    for (int place = 0; place < places; ++place) {
      if (limit.Allows({kFile, place}, kLine, now)) allowed.back() += kLine;
    }
  }
  return allowed;
}

size_t MostInASecond(const std::vector<size_t>& allowed) {
  size_t most = 0, sum = 0;
  for (size_t i = 0; i < allowed.size(); ++i) {
    sum += allowed[i];
    if (i >= 1000) sum -= allowed[i - 1000];
    most = std::max(most, sum);
  }
  return most;
}

TEST(LineLimitTest, AllTogetherFillNineKibibytesOfAnySecond) {
  LineLimit limit;
  const size_t most = MostInASecond(Flood(limit, 50, 10));
  EXPECT_LE(most, 9 << 10);
  EXPECT_GE(most, 8 << 10);
}

TEST(LineLimitTest, OnePlaceFillsFourKibibytesOfAnySecond) {
  LineLimit limit;
  const size_t most = MostInASecond(Flood(limit, 1, 10));
  EXPECT_LE(most, 4 << 10);
  EXPECT_GE(most, 3 << 10);
}

TEST(LineLimitTest, AFloodFromOnePlaceLeavesRoomForOthers) {
  LineLimit limit;
  Flood(limit, 1, 10);
  EXPECT_TRUE(
      limit.Allows({kFile, 7}, kLine, absl::UnixEpoch() + absl::Seconds(10)));
}

TEST(LineLimitTest, WhatIsQuietIsNeverLeftOut) {
  LineLimit limit;
  for (int second = 0; second < 100; ++second) {
    EXPECT_TRUE(limit.Allows({kFile, 1}, 1000,
                             absl::UnixEpoch() + absl::Seconds(second)));
  }
}

}  // namespace
}  // namespace attnd::server
