#include "kernels/cuda/tile/visits.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace attnd::cuda {
namespace {

constexpr int kDraws = 4000;
constexpr int kRows = 8, kCols = 16;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
bool Has(const Interval& i, int64_t n) { return n >= i.lo && n < i.hi; }

// A few blocks of rows and columns, at strides from 1 to more than a block.
RowIntervals RandomIntervals(std::mt19937& random) {
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  constexpr int64_t kStrides[] = {1, 1, 2, 5, 40};
  RowIntervals r;
  r.rows = draw(0, 5 * kRows);
  r.columns = draw(0, 5 * kCols);
  r.q_stride = kStrides[draw(0, 4)];
  r.kv_stride = kStrides[draw(0, 4)];
  r.q_start = draw(-100, 100);
  r.kv_start = draw(-100, 100);
  r.left = draw(0, 2) == 0 ? -1 : draw(0, 90);
  r.right = draw(0, 2) == 0 ? -1 : draw(0, 90);
  return r;
}

// With the segment's padding, which is a block of columns more.
template <class Check>
void ForEachPair(const Check& check) {
  std::mt19937 random(1);
  for (int n = 0; n < kDraws; ++n) {
    const RowIntervals r = RandomIntervals(random);
    for (int64_t c = 0; c <= CeilDiv(r.columns, kCols); ++c) {
      for (int64_t m = 0; m < CeilDiv(r.rows, kRows); ++m) {
        const int64_t first = m * kRows;
        const int64_t last = std::min(first + kRows, r.rows) - 1;
        SCOPED_TRACE(::testing::Message()
                     << "draw " << n << " block of columns " << c << " of rows "
                     << m);
        check(r, c, m, first, last);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(VisitsTest, BlocksOfRowsAndOfColumnsVisitEachOther) {
  ForEachPair([](const RowIntervals& r, int64_t c, int64_t m, int64_t first,
                 int64_t last) {
    ASSERT_EQ(Has(RowBlocksOf(r, c * kCols, kCols, kRows), m),
              Has(ColumnBlocksOf(r, first, last, kCols), c));
  });
}

TEST(VisitsTest, WhatARowSeesIsVisitedAndComparedUnlessAllRowsSeeIt) {
  ForEachPair([](const RowIntervals& r, int64_t c, int64_t m, int64_t first,
                 int64_t last) {
    bool any = false, all = true;
    for (int64_t row = first; row <= last; ++row) {
      for (int64_t column = c * kCols; column < (c + 1) * kCols; ++column) {
        const bool sees = Has(r.Row(row), column);
        any = any || sees;
        all = all && sees;
      }
    }
    if (any) {
      ASSERT_TRUE(Has(RowBlocksOf(r, c * kCols, kCols, kRows), m));
    }
    ASSERT_EQ(Has(RowBlocksWithoutMask(r, c * kCols, kCols, kRows), m), all);
  });
}

}  // namespace
}  // namespace attnd::cuda
