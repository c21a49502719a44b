// Problems of equal strides, said with strides of one.

#include "kernels/cuda/launch/unit_strides.h"

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mask.h"

namespace attnd::cuda {
namespace {

class Striped {
 public:
  explicit Striped(uint32_t seed) : random_(seed) {
    problem_.batch = Draw(1, 3);
    problem_.q_len = Draw(0, 12);
    problem_.q_stride = Draw(2, 9);
    problem_.mask.causal = Draw(0, 1) == 1;
    if (Draw(0, 1) == 1) problem_.mask.left = Draw(0, 40);
    if (Draw(0, 2) == 0) problem_.mask.right = Draw(0, 40);
    for (int64_t b = 0; b < problem_.batch; ++b) {
      q_lens_.push_back(Draw(0, problem_.q_len));
      q_starts_.push_back(Draw(-60, 60));
      kv_starts_.push_back(Draw(-60, 60));
    }
    if (Draw(0, 1) == 1) problem_.q_lens = q_lens_;
    // Else row 0 stands where the lengths say.
    const int64_t how = Draw(0, 2);
    if (how == 1) problem_.q_start = Draw(-60, 60);
    if (how == 2) problem_.q_starts = q_starts_;
    for (int64_t n = Draw(0, 2); n >= 0; --n) {
      KvSegment& s = segments_.emplace_back();
      s.len = Draw(0, 12);
      s.positions.stride = problem_.q_stride;
      s.positions.start = Draw(-60, 60);
      if (Draw(0, 1) == 1) s.positions.starts = kv_starts_;
    }
    problem_.kv = segments_;
  }

  Problem& problem() { return problem_; }
  std::vector<KvSegment>& segments() { return segments_; }

 private:
  int64_t Draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  std::mt19937 random_;
  Problem problem_;
  std::vector<int64_t> q_lens_, q_starts_, kv_starts_;
  std::vector<KvSegment> segments_;
};

TEST(UnitStridesTest, RowsSeeTheSameColumns) {
  int found = 0, windows = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Striped striped(seed);
    const Problem& p = striped.problem();
    const UnitStrides unit(p);
    const Problem& u = unit.problem();
    if (&u == &p) continue;
    ++found;
    windows += p.mask.left >= 0 && (p.mask.causal || p.mask.right >= 0);
    ASSERT_EQ(u.q_stride, 1);
    for (size_t n = 0; n < p.kv.size(); ++n) {
      ASSERT_EQ(u.kv[n].positions.stride, 1);
      for (int64_t b = 0; b < p.batch; ++b) {
        const RowIntervals expected = MakeRowIntervals(p, b, p.kv[n]);
        const RowIntervals rows = MakeRowIntervals(u, b, u.kv[n]);
        ASSERT_EQ(rows.rows, expected.rows);
        for (int64_t i = 0; i < rows.rows; ++i) {
          const Interval is = rows.Row(i), was = expected.Row(i);
          ASSERT_EQ(is.empty(), was.empty()) << "row " << i;
          if (was.empty()) continue;
          ASSERT_EQ(is.lo, was.lo) << "row " << i;
          ASSERT_EQ(is.hi, was.hi) << "row " << i;
        }
      }
    }
  }
  EXPECT_GT(found, 1000);
  EXPECT_GT(windows, 100);
}

TEST(UnitStridesTest, AStripeIsACausalTriangle) {
  Striped striped(0);
  Problem& p = striped.problem();
  std::vector<KvSegment>& segments = striped.segments();
  segments.resize(1);
  p = Problem();
  p.batch = 1;
  p.q_len = 5;
  p.kv = segments;
  p.mask.causal = true;
  p.q_stride = 4;
  p.q_start = 2;
  for (const auto& [start, expected] : {std::pair(1, 0), {2, 0}, {3, 1}}) {
    segments[0] = KvSegment();
    segments[0].len = 5;
    segments[0].positions = {.start = start, .stride = 4};
    const UnitStrides unit(p);
    ASSERT_NE(&unit.problem(), &p);
    EXPECT_EQ(unit.problem().mask.right, 0);
    EXPECT_EQ(unit.problem().mask.left, -1);
    EXPECT_EQ(unit.problem().q_start, 0);
    EXPECT_EQ(unit.problem().kv[0].positions.starts[0], expected);
  }
}

TEST(UnitStridesTest, LeavesOthersAlone) {
  Striped striped(1);
  striped.problem().q_stride = striped.segments()[0].positions.stride + 1;
  EXPECT_EQ(&UnitStrides(striped.problem()).problem(), &striped.problem());
}

}  // namespace
}  // namespace attnd::cuda
