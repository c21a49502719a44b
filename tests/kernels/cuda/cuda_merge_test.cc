// Merge of a member against float64: on a GPU, and that it is enqueued right on
// a fake runtime.

#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/one_member.h"
#include "tests/kernels/merge_problem.h"

namespace attnd::cuda {
namespace {

using testing::MergeProblem;
using testing::PlacedRows;

class CudaMergeTest : public OneMemberTest {
 protected:
  // What is merged: LSE, and from `o` on O.
  struct Results {
    Bytes lse, o;
  };

  Results Merge(const MergeProblem& problem) {
    // Both in one block, of which O begins with a whole line.
    Bytes results = problem.to_lse().memory;
    results.resize((results.size() + 15) / 16 * 16);
    const size_t o = results.size();
    results.insert(results.end(), problem.to_o().memory.begin(),
                   problem.to_o().memory.end());
    std::byte* const to = OnDevice(results);
    std::map<const PlacedRows*, std::byte*> places = {
        {&problem.to_lse(), to}, {&problem.to_o(), to + o}};
    for (const auto* terms : {&problem.o(), &problem.lse()}) {
      for (const PlacedRows& term : *terms) {
        places[&term] = OnDevice(term.memory);
      }
    }
    BeforeKernels();
    problem.Merge([&](const PlacedRows& rows) { return places.at(&rows); },
                  [&](const RowMerges& merges) {
                    EXPECT_TRUE(member_->Merge(merges).ok());
                  });
    const Bytes got = Fetch(to, results.size());
    const auto o_begins = got.begin() + static_cast<int64_t>(o);
    const auto lse_bytes = static_cast<int64_t>(problem.to_lse().memory.size());
    return {{got.begin(), got.begin() + lse_bytes}, {o_begins, got.end()}};
  }
};

TEST_F(CudaMergeTest, IsRightForAnyShapeAndTheSameEachTime) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const MergeProblem problem(seed);
    const Results got = Merge(problem), again = Merge(problem);
    ASSERT_TRUE(problem.IsRight(got.o, got.lse)) << problem.Describe();
    ASSERT_TRUE(got.o == again.o && got.lse == again.lse) << problem.Describe();
  }
}

TEST_F(CudaMergeTest, WhatHasNoKernelIsRefused) {
  RowMerges merges;
  merges.rows = merges.heads = 1;
  merges.dim = 257;
  EXPECT_FALSE(member_->Merge(merges).ok());
  merges.dim = 64;
  const std::vector<RowState> many(RowMerges::kMostTerms + 1);
  merges.terms = many;
  EXPECT_FALSE(member_->Merge(merges).ok());
  float o = 0;
  RowState rounded;
  rounded.o.dtype = DType::kF16;
  merges.terms = {&rounded, 1};
  merges.o.data = &o;
  EXPECT_FALSE(member_->Merge(merges).ok());
  merges.rows = 0;  // there is nothing to do
  EXPECT_TRUE(member_->Merge(merges).ok());
}

}  // namespace
}  // namespace attnd::cuda
