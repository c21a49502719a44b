#include "kernels/mask.h"

#include <random>

#include "gtest/gtest.h"
#include "kernels/pairs.h"

namespace attnd {
namespace {

// By comparing positions, in 128 bits.
bool Sees(const RowIntervals& r, int64_t row, int64_t column) {
  const __int128 q = static_cast<__int128>(r.q_start) +
                     static_cast<__int128>(row) * r.q_stride;
  const __int128 k = static_cast<__int128>(r.kv_start) +
                     static_cast<__int128>(column) * r.kv_stride;
  return (r.left < 0 || k >= q - r.left) && (r.right < 0 || k <= q + r.right);
}

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Chance(double p) { return std::bernoulli_distribution(p)(random_); }

  // Rows or columns whose positions all lie within +-kMaxPosition.
  void Line(int64_t& len, int64_t& start, int64_t& stride) {
    len = Int(0, 40);
    const int64_t room = 2 * kMaxPosition / std::max<int64_t>(1, len - 1);
    stride = Chance(0.5)   ? 1
             : Chance(0.7) ? Int(1, 7)
                           : Int(1, std::min(room, kMaxPosition));
    const int64_t extent = std::max<int64_t>(0, len - 1) * stride;
    if (Chance(0.7))
      start = std::clamp(Int(-50, 50), -kMaxPosition, kMaxPosition - extent);
    else
      start = Chance(0.5) ? -kMaxPosition : kMaxPosition - extent;
  }
  int64_t Window() {
    if (Chance(0.3)) return -1;
    if (Chance(0.8)) return Int(0, 60);
    return Chance(0.5) ? 2 * kMaxPosition : Int(0, 2 * kMaxPosition);
  }

 private:
  std::mt19937_64 random_;
};

RowIntervals RandomIntervals(uint32_t seed) {
  Draw draw(seed);
  RowIntervals r;
  draw.Line(r.rows, r.q_start, r.q_stride);
  draw.Line(r.columns, r.kv_start, r.kv_stride);
  r.left = draw.Window();
  r.right = draw.Window();
  return r;
}

constexpr int kDraws = 3000;

TEST(RowIntervalsTest, AgreeWithComparedPositions) {
  for (int seed = 0; seed < kDraws; ++seed) {
    const RowIntervals r = RandomIntervals(seed);
    for (int64_t row = 0; row < r.rows; ++row) {
      const Interval seen = r.Row(row);
      EXPECT_GE(seen.lo, 0);
      EXPECT_LE(seen.hi, r.columns);
      for (int64_t column = 0; column < r.columns; ++column)
        ASSERT_EQ(Sees(r, row, column), column >= seen.lo && column < seen.hi)
            << "seed " << seed << " row " << row << " column " << column;
    }
  }
}

TEST(RowIntervalsTest, NeverDecrease) {
  for (int seed = 0; seed < kDraws; ++seed) {
    const RowIntervals r = RandomIntervals(seed);
    for (int64_t row = 1; row < r.rows; ++row) {
      ASSERT_LE(r.Row(row - 1).lo, r.Row(row).lo) << "seed " << seed;
      ASSERT_LE(r.Row(row - 1).hi, r.Row(row).hi) << "seed " << seed;
    }
  }
}

TEST(RowIntervalsTest, OfTilesCoverAndAgreeWithTheirRows) {
  for (int seed = 0; seed < kDraws; ++seed) {
    const RowIntervals r = RandomIntervals(seed);
    if (r.rows == 0) continue;
    Draw draw(seed);
    const int64_t first = draw.Int(0, r.rows - 1),
                  last = draw.Int(first, r.rows - 1);
    const Interval any = r.Rows(first, last), all = r.AllRows(first, last);
    for (int64_t row = first; row <= last; ++row) {
      const Interval seen = r.Row(row);
      if (!seen.empty()) {
        EXPECT_LE(any.lo, seen.lo);
        EXPECT_GE(any.hi, seen.hi);
      }
      if (!all.empty()) {
        EXPECT_GE(all.lo, seen.lo);
        EXPECT_LE(all.hi, seen.hi);
      }
    }
  }
}

TEST(RowIntervalsTest, PairsAreTheSumOfAllRows) {
  for (int seed = 0; seed < kDraws; ++seed) {
    const RowIntervals r = RandomIntervals(seed);
    double pairs = 0;
    for (int64_t row = 0; row < r.rows; ++row) pairs += r.Row(row).size();
    ASSERT_EQ(CountPairs(r), pairs) << "seed " << seed;
  }
}

TEST(RowIntervalsTest, PairsOfMoreRowsThanAnyoneCanVisit) {
  constexpr int64_t kMany = int64_t{1} << 40;
  // Rows see 5, 4, 5, 4, ... columns, as every other one lies between two.
  RowIntervals r{.rows = kMany, .columns = kMany, .left = 4, .right = 4};
  r.q_start = 1000;
  r.kv_stride = 2;
  EXPECT_EQ(CountPairs(r), 4.5 * kMany);
  // A causal square.
  r = {.rows = kMany, .columns = kMany, .right = 0};
  EXPECT_EQ(CountPairs(r), 0.5 * kMany * (kMany + 1.0));
}

// Also of columns past the last, and of rows that see nothing because their
// window lies between two columns.
TEST(RowIntervalsTest, RowsThatSeeColumnsAreThoseWhoseIntervalsHaveThem) {
  for (int seed = 0; seed < kDraws; ++seed) {
    const RowIntervals r = RandomIntervals(seed);
    Draw draw(seed);
    const int64_t first = draw.Int(0, r.columns + 3),
                  last = draw.Int(first, r.columns + 6);
    const Interval any = r.RowsThatSee(first, last),
                   all = r.RowsThatSeeAll(first, last);
    ASSERT_GE(any.lo, 0) << "seed " << seed;
    ASSERT_LE(any.lo, any.hi) << "seed " << seed;
    ASSERT_LE(any.hi, r.rows) << "seed " << seed;
    for (int64_t row = 0; row < r.rows; ++row) {
      const Interval seen = r.Row(row);
      if (!seen.empty()) {
        ASSERT_EQ(row >= any.lo && row < any.hi,
                  seen.lo <= last && seen.hi > first)
            << "seed " << seed << " row " << row << " columns " << first
            << " to " << last;
      }
      ASSERT_EQ(row >= all.lo && row < all.hi,
                seen.lo <= first && seen.hi > last)
          << "seed " << seed << " row " << row << " columns " << first << " to "
          << last;
    }
  }
}

TEST(MakeRowIntervalsTest, DefaultsToTheBottomRightOfEachSequencesLengths) {
  const int64_t q_lens[] = {4, 2}, kv_lens[] = {9, 3};
  KvSegment segment;
  segment.len = 9;
  segment.lens = kv_lens;
  Problem p;
  p.batch = 2;
  p.q_len = 4;
  p.q_lens = q_lens;
  p.kv = absl::MakeConstSpan(&segment, 1);
  p.mask.causal = true;
  for (int64_t b = 0; b < 2; ++b) {
    const RowIntervals r = MakeRowIntervals(p, b, segment);
    EXPECT_EQ(r.rows, q_lens[b]);
    EXPECT_EQ(r.Row(r.rows - 1).hi, kv_lens[b]);
    EXPECT_EQ(r.Row(0).hi, kv_lens[b] - q_lens[b] + 1);
  }
}

TEST(MakeRowIntervalsTest, CausalOverridesTheWindowToTheRight) {
  KvSegment segment;
  segment.len = 8;
  Problem p;
  p.batch = 1;
  p.q_len = 8;
  p.kv = absl::MakeConstSpan(&segment, 1);
  p.mask = {
      .causal = true, .left = std::numeric_limits<int64_t>::max(), .right = 5};
  const RowIntervals r = MakeRowIntervals(p, 0, segment);
  EXPECT_EQ(r.Row(3).lo, 0);
  EXPECT_EQ(r.Row(3).hi, 4);
}

}  // namespace
}  // namespace attnd
