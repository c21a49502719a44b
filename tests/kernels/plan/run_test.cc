// Runs of any step are what the sets of their tokens are.

#include "kernels/plan/run.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/plan/cuts.h"

namespace attnd::plan {
namespace {

using Tokens = std::set<int64_t>;

Tokens TokensOf(const plan::Run& run) {
  Tokens tokens;
  for (int64_t i = 0; i < run.count; ++i) {
    tokens.insert(run.first + i * run.step);
  }
  return tokens;
}

Tokens Both(const Tokens& a, const Tokens& b) {
  Tokens both;
  for (const int64_t token : a) {
    if (b.contains(token)) both.insert(token);
  }
  return both;
}

class RunTest : public ::testing::Test {
 protected:
  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  // Some tokens of [0, 40).
  plan::Run Draw() {
    plan::Run run{Int(0, 30), 0, Int(1, 5)};
    run.count = Int(0, (39 - run.first) / run.step + 1);
    return run;
  }

  std::mt19937 random_{1};
};

TEST_F(RunTest, EndsPastItsLastToken) {
  for (int i = 0; i < 1000; ++i) {
    const plan::Run run = Draw();
    EXPECT_EQ(run.empty(), TokensOf(run).empty());
    EXPECT_EQ(run.end(), run.empty() ? run.first : *TokensOf(run).rbegin() + 1);
  }
}

TEST_F(RunTest, HasASubset) {
  int had = 0;
  for (int i = 0; i < 20000; ++i) {
    const plan::Run a = Draw(), b = Draw();
    const bool has = Both(TokensOf(a), TokensOf(b)) == TokensOf(b);
    had += has ? 1 : 0;
    EXPECT_EQ(a.Has(b), has);
  }
  EXPECT_GT(had, 100);
}

TEST_F(RunTest, CommonIsTheIntersection) {
  for (int i = 0; i < 20000; ++i) {
    const plan::Run a = Draw(), b = Draw();
    EXPECT_EQ(TokensOf(Common(a, b)), Both(TokensOf(a), TokensOf(b)));
  }
  EXPECT_TRUE(Common({0, 100, 7}, {3, 100, 7}).empty());
}

TEST_F(RunTest, HullIsTheShortestRunWithBoth) {
  for (int i = 0; i < 5000; ++i) {
    const plan::Run a = Draw(), b = Draw();
    const plan::Run hull = Hull(a, b);
    EXPECT_TRUE(hull.Has(a) && hull.Has(b));
    // No longer step would do, and no fewer tokens.
    if (a.empty() || b.empty()) continue;
    EXPECT_EQ(hull.first, std::min(a.first, b.first));
    EXPECT_EQ(hull.end(), std::max(a.end(), b.end()));
    EXPECT_EQ(hull.step, std::gcd(std::gcd(a.step, b.step), a.first - b.first));
  }
  EXPECT_EQ(Hull({1, 3, 4}, {17, 2, 4}), (plan::Run{1, 6, 4}));
}

TEST_F(RunTest, CutsHaveEachTokenOnceAndAreWithinTheOthersOrBesideThem) {
  for (int i = 0; i < 2000; ++i) {
    const plan::Run run = Draw();
    const std::vector<plan::Run> others = {Draw(), Draw(), Draw()};
    Tokens all;
    int64_t count = 0;
    for (const plan::Run& piece : CutAtEnds(run, others)) {
      EXPECT_FALSE(piece.empty());
      for (const plan::Run& other : others) {
        EXPECT_TRUE(other.Has(piece) || Common(other, piece).empty());
      }
      all.merge(TokensOf(piece));
      count += piece.count;
    }
    EXPECT_EQ(all, TokensOf(run));
    EXPECT_EQ(count, all.size());
  }
}

TEST_F(RunTest, PairsAndWhatIsNeededAreThoseOfTheTokens) {
  for (int i = 0; i < 3000; ++i) {
    RowIntervals sees;
    sees.rows = sees.columns = 40;
    sees.q_start = Int(-20, 20);
    sees.q_stride = Int(1, 3);
    sees.kv_stride = Int(1, 3);
    if (Int(0, 3) > 0) sees.right = Int(0, 10);
    if (Int(0, 1) > 0) sees.left = Int(0, 10);
    const plan::Run rows = Draw(), columns = Draw();
    const plan::Run needed = Needed(sees, rows), seeing = Seeing(sees, columns);
    int64_t pairs = 0;
    for (const int64_t row : TokensOf(rows)) {
      const Interval interval = sees.Row(row);
      for (const int64_t column : TokensOf(columns)) {
        if (column < interval.lo || column >= interval.hi) continue;
        ++pairs;
        EXPECT_TRUE(needed.Has({column, 1}));
        EXPECT_TRUE(seeing.Has({row, 1}));
      }
    }
    EXPECT_EQ(PairsOf(sees, rows, columns), pairs);
  }
}

TEST(StripedTest, TokenIGoesToShareIModShares) {
  // The stripe of rank 1 of 8, as the paper's extract_local gives it.
  EXPECT_EQ(TokensOf(CutStriped(64, 8)[1].at(0)),
            (Tokens{1, 9, 17, 25, 33, 41, 49, 57}));
  for (const int shares : {1, 2, 3, 7, 8}) {
    for (int64_t tokens = 0; tokens < 30; ++tokens) {
      int64_t total = 0;
      const std::vector<Runs> cut = CutStriped(tokens, shares);
      ASSERT_EQ(cut.size(), shares);
      for (int share = 0; share < shares; ++share) {
        for (const plan::Run& run : cut[share]) {
          for (const int64_t token : TokensOf(run)) {
            EXPECT_EQ(token % shares, share);
            EXPECT_LT(token, tokens);
            ++total;
          }
        }
      }
      EXPECT_EQ(total, tokens);
    }
  }
}

}  // namespace
}  // namespace attnd::plan
