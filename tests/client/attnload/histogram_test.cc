#include "client/attnload/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace attnd::attnload {
namespace {

TEST(Histogram, IsZeroWhenEmpty) {
  const Histogram h;
  EXPECT_EQ(h.count(), 0);
  EXPECT_EQ(h.Quantile(0.5), absl::ZeroDuration());
  EXPECT_EQ(h.mean(), absl::ZeroDuration());
}

TEST(Histogram, IsExactForOneValue) {
  for (int64_t ns : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{256},
                     int64_t{123456789}, int64_t{1} << 60}) {
    Histogram h;
    h.Record(absl::Nanoseconds(ns));
    EXPECT_EQ(h.Quantile(0.5), absl::Nanoseconds(ns));
    EXPECT_EQ(h.max(), absl::Nanoseconds(ns));
  }
}

TEST(Histogram, QuantilesAreWithinABucketAboveTheSorted) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> value(14, 2);
  Histogram h;
  std::vector<int64_t> sorted;
  for (int i = 0; i < 20000; ++i) {
    sorted.push_back(int64_t(value(random)));
    h.Record(absl::Nanoseconds(sorted.back()));
  }
  std::sort(sorted.begin(), sorted.end());
  for (double share : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const int64_t exact = sorted[std::ceil(share * sorted.size()) - 1];
    const int64_t got = absl::ToInt64Nanoseconds(h.Quantile(share));
    EXPECT_GE(got, exact) << share;
    EXPECT_LE(got, exact + exact / 128 + 1) << share;
  }
}

TEST(Histogram, CountsNegativeDurationsAsZero) {
  Histogram h;
  h.Record(absl::Nanoseconds(-5));
  EXPECT_EQ(h.max(), absl::ZeroDuration());
  EXPECT_EQ(h.count(), 1);
}

}  // namespace
}  // namespace attnd::attnload
