#include "tests/kernels/state_checks.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "gtest/gtest.h"
#include "tests/kernels/small_problem.h"

namespace attnd::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A small problem's results, merged with what a test says came before.
struct Merged {
  Merged() {
    for (int64_t b = 0; b < SmallProblem::kBatch; ++b) {
      for (int64_t h = 0; h < SmallProblem::kHeads; ++h) {
        for (int64_t i = 0; i < SmallProblem::kRows; ++i) {
          lse_before.Set(b, h, i, -kInf);
        }
      }
    }
    args.problem = small.View();
    args.o = o.view();
    args.lse = lse.view();
  }
  void MergeWithBefore() {
    args.before.o = std::as_const(o_before).view();
    args.before.lse = std::as_const(lse_before).view();
  }

  SmallProblem small{1};
  OwnedTensor o{DType::kF32, SmallProblem::kBatch, SmallProblem::kRows,
                SmallProblem::kHeads, SmallProblem::kValueDim};
  OwnedTensor o_before{DType::kF32, SmallProblem::kBatch, SmallProblem::kRows,
                       SmallProblem::kHeads, SmallProblem::kValueDim};
  OwnedRows lse{SmallProblem::kBatch, SmallProblem::kHeads,
                SmallProblem::kRows};
  OwnedRows lse_before{SmallProblem::kBatch, SmallProblem::kHeads,
                       SmallProblem::kRows};
  ForwardArgs args;
};

}  // namespace

void ExpectOnlySeenStatesAreRead(const ForwardFn& forward) {
  Merged alone, merged;  // o_before is NaN
  merged.MergeWithBefore();
  ASSERT_TRUE(forward(alone.args).ok());
  ASSERT_TRUE(forward(merged.args).ok());
  EXPECT_EQ(merged.o.bytes(), alone.o.bytes());
  EXPECT_EQ(merged.lse.bytes(), alone.lse.bytes());
}

void ExpectRowsThatSeeNothingKeepTheirState(const ForwardFn& forward) {
  Merged merged;
  merged.MergeWithBefore();
  merged.args.problem.mask.causal = true;
  merged.args.problem.q_start = -3;  // rows 0 to 2 see nothing
  merged.lse_before.Set(1, 2, 1, 0.75);
  for (int64_t d = 0; d < SmallProblem::kValueDim; ++d) {
    merged.o_before.Set(1, 1, 2, d, 0.1 + static_cast<double>(d));
  }
  ASSERT_TRUE(forward(merged.args).ok());
  EXPECT_EQ(merged.lse.Get(1, 2, 1), 0.75);
  EXPECT_EQ(merged.lse.Get(1, 2, 0), -kInf);
  for (int64_t d = 0; d < SmallProblem::kValueDim; ++d) {
    EXPECT_EQ(merged.o.Get(1, 1, 2, d), merged.o_before.Get(1, 1, 2, d));
    EXPECT_EQ(merged.o.Get(1, 0, 2, d), 0);
  }
}

void ExpectRightWeightsWhateverTheSizeOfLse(const ForwardFn& forward) {
  Merged alone, merged;
  for (Merged* m : {&alone, &merged}) m->args.problem.scale = 0;
  ASSERT_TRUE(forward(alone.args).ok());
  merged.MergeWithBefore();
  const double own = std::log(SmallProblem::kColumns);
  const auto set = [&](int64_t i, double lse, double o) {
    merged.lse_before.Set(0, 0, i, lse);
    for (int64_t d = 0; d < SmallProblem::kValueDim; ++d) {
      merged.o_before.Set(0, i, 0, d, o);
    }
  };
  set(0, own, 8);
  set(1, 3e38, 9);
  set(2, -3e38, 10);
  set(3, std::nan(""), 11);
  ASSERT_TRUE(forward(merged.args).ok());
  const auto o = [](const Merged& m, int64_t i) { return m.o.Get(0, i, 0, 1); };
  EXPECT_NEAR(o(merged, 0), (o(alone, 0) + 8) / 2, 1e-6);
  EXPECT_NEAR(merged.lse.Get(0, 0, 0), own + std::log(2.0), 1e-6);
  EXPECT_EQ(o(merged, 1), 9);
  EXPECT_EQ(merged.lse.Get(0, 0, 1), 3e38f);
  EXPECT_EQ(o(merged, 2), o(alone, 2));
  EXPECT_EQ(merged.lse.Get(0, 0, 2), alone.lse.Get(0, 0, 2));
  EXPECT_TRUE(std::isnan(o(merged, 3)));
  EXPECT_TRUE(std::isnan(merged.lse.Get(0, 0, 3)));
  EXPECT_EQ(o(merged, 4), o(alone, 4));
}

}  // namespace attnd::testing
