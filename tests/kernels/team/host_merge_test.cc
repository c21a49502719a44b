// Merge of a member whose memory is the host's, against float64.

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/row_merge.h"
#include "kernels/team/host_member.h"
#include "tests/kernels/merge_problem.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::MergeProblem;
using testing::PlacedRows;

constexpr float kNothing = RowMerger::kNothing;

TEST(HostMergeTest, IsRightForAnyShapeAndTheSameEachTime) {
  const auto backend = testing::OneCpu();
  const auto member = backend->NewMemberStream().value();
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const MergeProblem problem(seed);
    std::vector<std::byte> o[2], lse[2];
    for (int turn = 0; turn < 2; ++turn) {
      o[turn] = problem.to_o().memory;
      lse[turn] = problem.to_lse().memory;
      const auto memory_of = [&](const PlacedRows& rows) {
        if (&rows == &problem.to_o()) return o[turn].data();
        if (&rows == &problem.to_lse()) return lse[turn].data();
        return const_cast<std::byte*>(rows.memory.data());
      };
      problem.Merge(memory_of, [&](const RowMerges& merges) {
        ASSERT_TRUE(member->Merge(merges).ok());
      });
    }
    ASSERT_TRUE(problem.IsRight(o[0], lse[0])) << problem.Describe();
    ASSERT_TRUE(o[0] == o[1] && lse[0] == lse[1]) << problem.Describe();
  }
}

// LSE and weights of results with these LSE.
struct Merged {
  float lse = 0;
  std::vector<float> weights;
};
Merged MergeAll(const std::vector<float>& lses) {
  RowMerger merger;
  for (const float lse : lses) merger.See(lse);
  for (const float lse : lses) merger.Add(lse);
  Merged merged{merger.lse(), {}};
  for (const float lse : lses) {
    merged.weights.push_back(lse == kNothing ? 0 : merger.Weight(lse));
  }
  return merged;
}

TEST(RowMergerTest, HasTheBitsOfMergeRow) {
  for (const float a : {-3e38f, -1e4f, -2.5f, 0.0f, 0.1f, 7.0f, 3e38f}) {
    for (const float b : {kNothing, -3e38f, -1e3f, -2.0f, 0.0f, 7.5f, 3e38f}) {
      const RowMerge two = MergeRow(a, b);
      const Merged merged = MergeAll({a, b});
      EXPECT_EQ(merged.lse, two.lse) << a << " " << b;
      EXPECT_EQ(merged.weights[0], two.weight) << a << " " << b;
      EXPECT_EQ(merged.weights[1], two.weight_before) << a << " " << b;
    }
  }
}

TEST(RowMergerTest, OneResultStaysAsItIs) {
  for (const float lse : {-3e38f, -0.1f, 12.5f, 3e38f}) {
    const Merged merged = MergeAll({kNothing, lse, kNothing});
    EXPECT_EQ(merged.lse, lse);
    EXPECT_EQ(merged.weights[1], 1);
  }
}

TEST(RowMergerTest, WhatHasSeenNothingMergesToNothing) {
  EXPECT_EQ(MergeAll({}).lse, kNothing);
  EXPECT_EQ(MergeAll({kNothing, kNothing}).lse, kNothing);
}

TEST(RowMergerTest, ANanIsNotLost) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& lses : std::vector<std::vector<float>>{
           {nan}, {nan, kNothing}, {1, nan, 2}, {3e38f, nan}}) {
    EXPECT_NE(MergeAll(lses).lse, MergeAll(lses).lse);
  }
}

}  // namespace
}  // namespace attnd
