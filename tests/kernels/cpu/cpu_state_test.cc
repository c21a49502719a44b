// Forward that merges with what came before it, on the CPU.

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/chained_forward.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/run_group.h"
#include "tests/kernels/small_problem.h"
#include "tests/thinned.h"

namespace attnd::cpu {
namespace {

using testing::CheckForward;
using testing::ForwardOnly;
using testing::OnEveryTarget;
using testing::OwnedRows;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::SmallProblem;

constexpr float kInf = std::numeric_limits<float>::infinity();

class CpuStateTest : public ::testing::Test {
 protected:
  absl::Status Forward(const ForwardArgs& args,
                       Algorithm algorithm = Algorithm::kAuto) {
    return testing::RunForward(*stream_, {&args, 1}, {.algorithm = algorithm});
  }
  ::testing::AssertionResult InLinks(const RandomProblem& problem, int links,
                                     uint32_t seed,
                                     Algorithm algorithm = Algorithm::kAuto) {
    return CheckForward(problem, [&](const ForwardArgs& args) {
      return testing::ForwardInLinks(
          args, links, seed,
          [&](const ForwardArgs& link) { return Forward(link, algorithm); });
    });
  }

  const std::unique_ptr<Backend> backend_ =
      CreateCpuBackend({.threads = 2}).value();
  const std::unique_ptr<Stream> stream_ = backend_->NewStream().value();
};

TEST_F(CpuStateTest, LinksGiveTheWhole) {
  OnEveryTarget([&] {
    for (int seed = 0; seed < 120 / testing::kProblemStep; ++seed) {
      const RandomProblem problem(seed, ForwardOnly());
      ASSERT_TRUE(InLinks(problem, 5, seed)) << problem.Describe();
    }
  });
}

TEST_F(CpuStateTest, LinksGiveTheWholeByThePapersAlgorithms) {
  for (const Algorithm algorithm :
       {Algorithm::kNaive, Algorithm::kFlashAttention1}) {
    for (int seed = 0; seed < 20; ++seed) {
      const RandomProblem problem(seed, ForwardOnly());
      ASSERT_TRUE(InLinks(problem, 5, seed, algorithm)) << problem.Describe();
    }
  }
}

// Whose columns are shared out among tasks, and put together by another.
TEST_F(CpuStateTest, FewQueriesAndManyKeys) {
  ProblemOptions options = ForwardOnly();
  options.max_batch = options.max_kv_heads = 1;
  options.max_q_len = 4;
  options.max_kv_len = 4000;
  options.max_dim = 64;
  OnEveryTarget([&] {
    for (int seed = 0; seed < 12 / testing::kProblemStep; ++seed) {
      ASSERT_TRUE(InLinks(RandomProblem(seed, options), 3, seed));
    }
  });
}

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

TEST_F(CpuStateTest, WhatSawNothingBeforeIsNotRead) {
  Merged alone, merged;  // o_before is NaN
  merged.MergeWithBefore();
  ASSERT_TRUE(Forward(alone.args).ok());
  ASSERT_TRUE(Forward(merged.args).ok());
  EXPECT_EQ(merged.o.bytes(), alone.o.bytes());
  EXPECT_EQ(merged.lse.bytes(), alone.lse.bytes());
}

TEST_F(CpuStateTest, ARowThatSeesNothingKeepsWhatItHad) {
  Merged merged;
  merged.MergeWithBefore();
  merged.args.problem.mask.causal = true;
  merged.args.problem.q_start = -3;  // rows 0 to 2 see nothing
  merged.lse_before.Set(1, 2, 1, 0.75);
  for (int64_t d = 0; d < SmallProblem::kValueDim; ++d) {
    merged.o_before.Set(1, 1, 2, d, 0.1 + static_cast<double>(d));
  }
  ASSERT_TRUE(Forward(merged.args).ok());
  EXPECT_EQ(merged.lse.Get(1, 2, 1), 0.75);
  EXPECT_EQ(merged.lse.Get(1, 2, 0), -kInf);
  for (int64_t d = 0; d < SmallProblem::kValueDim; ++d) {
    EXPECT_EQ(merged.o.Get(1, 1, 2, d), merged.o_before.Get(1, 1, 2, d));
    EXPECT_EQ(merged.o.Get(1, 0, 2, d), 0);
  }
}

// Where LSE is too large for a logarithm to show in it, equal ones still count
// as much as each other, and a NaN stays in its row.
TEST_F(CpuStateTest, WeightsAreRightWhateverTheSizeOfLse) {
  Merged alone, merged;
  for (Merged* m : {&alone, &merged}) m->args.problem.scale = 0;
  ASSERT_TRUE(Forward(alone.args).ok());
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
  ASSERT_TRUE(Forward(merged.args).ok());
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

}  // namespace
}  // namespace attnd::cpu
