// Inputs chosen for what they do to P and dS, on a GPU.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/gradient_problem.h"
#include "tests/kernels/cuda/large_scores.h"
#include "tests/kernels/one_hot_problem.h"

namespace attnd {
namespace {

using testing::DenseShape;
using testing::DeviceTest;
using testing::GradientProblem;
using testing::HugeProducts;
using testing::HugeProductsOf;
using testing::LargeScores;
using testing::OneHotProblem;
using testing::OwnedTensor;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr float kHugeScales[] = {1e30f, -1e30f, 3e38f, -3e38f};

class CudaBackwardNumbersTest : public DeviceTest {
 protected:
  void Run(GradientProblem& problem, bool deterministic = true) {
    problem.PoisonOutputs();
    const auto counts =
        device().Backward({&problem.args, 1}, {.deterministic = deterministic});
    ASSERT_TRUE(counts.ok()) << counts.status();
  }

  // What forward of the problem gives, on the device too.
  void RunForward(GradientProblem& problem) {
    ForwardArgs args = problem.forward.args;
    args.problem = problem.problem();
    const auto counts = device().Forward({&args, 1});
    ASSERT_TRUE(counts.ok()) << counts.status();
  }
};

::testing::AssertionResult IsZero(const OwnedTensor& t, const char* name) {
  for (double x : t.Values()) {
    if (x != 0) return ::testing::AssertionFailure() << name << " has " << x;
  }
  return ::testing::AssertionSuccess();
}

// With O and LSE of the reference, which are exact but for LSEs out of range.
TEST_F(CudaBackwardNumbersTest, HugeScalesGiveExactOneHotResults) {
  for (DType dtype : kTypes) {
    for (float scale : kHugeScales) {
      SCOPED_TRACE(
          absl::StrCat("dtype ", static_cast<int>(dtype), " scale ", scale));
      OneHotProblem problem(dtype, scale);
      ASSERT_TRUE(reference::Forward(problem.forward, Algorithm::kNaive).ok());
      const auto counts = device().Backward({&problem.backward, 1});
      ASSERT_TRUE(counts.ok()) << counts.status();
      problem.ExpectBackward();
    }
  }
}

// The same of scores that are large already as products. Rows of 20 elements
// are not aligned as Hopper's kernels need them: they run in sm80's.
TEST_F(CudaBackwardNumbersTest, HugeProductsGiveExactOneHotResults) {
  for (DType dtype : kTypes) {
    for (int64_t dim : {20, 24, 96, 128, 192, 256}) {
      for (const HugeProducts& huge : HugeProductsOf(dtype)) {
        SCOPED_TRACE(absl::StrCat("dtype ", static_cast<int>(dtype), " dim ",
                                  dim, " size ", huge.size, " low ", huge.low));
        OneHotProblem problem(dtype, 1.0f, dim, huge);
        auto counts = device().Forward({&problem.forward, 1});
        ASSERT_TRUE(counts.ok()) << counts.status();
        counts = device().Backward({&problem.backward, 1});
        ASSERT_TRUE(counts.ok()) << counts.status();
        problem.ExpectBackward();
        if (huge.size > 0x1p63) continue;  // reference has no LSE
        ASSERT_TRUE(
            reference::Forward(problem.forward, Algorithm::kNaive).ok());
        counts = device().Backward({&problem.backward, 1});
        ASSERT_TRUE(counts.ok()) << counts.status();
        problem.ExpectBackward();
      }
    }
  }
}

// With those that the GPU gives, whose LSE has been in units of log2.
TEST_F(CudaBackwardNumbersTest, SoTheyDoAfterTheGpusOwnForward) {
  for (DType dtype : kTypes) {
    for (float scale : kHugeScales) {
      SCOPED_TRACE(
          absl::StrCat("dtype ", static_cast<int>(dtype), " scale ", scale));
      OneHotProblem problem(dtype, scale);
      auto counts = device().Forward({&problem.forward, 1});
      ASSERT_TRUE(counts.ok()) << counts.status();
      counts = device().Backward({&problem.backward, 1});
      ASSERT_TRUE(counts.ok()) << counts.status();
      problem.ExpectBackward();
    }
  }
}

// The winners' P is 1 if backward finds the score that forward found, whichever
// kernels they are: few rows, and rows whose dims the copy engine does not
// take, are not Hopper's in forward or in both. So are all others' where
// columns elsewhere count for more.
TEST_F(CudaBackwardNumbersTest, LargeScoresAreThoseOfForward) {
  for (DType dtype : kTypes) {
    const double unit = testing::RoundingUnit(dtype);
    for (int64_t dim : {20, 64, 96, 128, 256}) {
      for (int64_t q_len : {1, 3, 4, 5, 70, 300}) {
        for (double size : {100.0, 300.0, 10000.0}) {
          SCOPED_TRACE(absl::StrCat("dtype ", static_cast<int>(dtype), " dim ",
                                    dim, " q_len ", q_len, " size ", size));
          GradientProblem problem(7, {.dtype = dtype,
                                      .q_len = q_len,
                                      .kv_len = 300,
                                      .q_heads = 4,
                                      .dim = dim});
          LargeScores scores(size, problem);
          RunForward(problem);
          Run(problem);
          EXPECT_LE(scores.WorstOfDv(), unit + 0x1p-20);
          scores.RaiseLse(1.3f);
          Run(problem);
          // Hopper's LSE is one rounding off in a row out of a thousand whose
          // tile is not slow (sm90/epilogue.cuh).
          double lse = 0;
          for (double x : problem.forward.lse.Values()) lse = std::max(lse, x);
          const double rounding = lse < 0x1p19 ? 0x1p-23 * lse : 0;
          EXPECT_LE(scores.WorstOfDv(), 2 * unit + 0x1p-17 + rounding);
          for (double x : problem.out.dq.Values())
            ASSERT_TRUE(std::isfinite(x));
          for (double x : problem.out.dk[0].Values())
            ASSERT_TRUE(std::isfinite(x));
        }
      }
    }
  }
}

// As of a shard whose columns count for nothing beside others.
TEST_F(CudaBackwardNumbersTest, AnLseFarAboveTheScoresGivesZeros) {
  for (DType dtype : kTypes) {
    for (int64_t dim : {40, 128}) {
      for (double lse : {1e3, 1e30, 3e38, kInf}) {
        SCOPED_TRACE(absl::StrCat("dtype ", static_cast<int>(dtype), " dim ",
                                  dim, " lse ", lse));
        GradientProblem problem(1, {.dtype = dtype,
                                    .q_len = 100,
                                    .kv_len = 150,
                                    .q_heads = 2,
                                    .dim = dim});
        problem.Solve();
        for (int64_t h = 0; h < 2; ++h) {
          for (int64_t i = 0; i < 100; ++i)
            problem.forward.lse.Set(0, h, i, lse);
        }
        Run(problem);
        EXPECT_TRUE(IsZero(problem.out.dq, "dq"));
        EXPECT_TRUE(IsZero(problem.out.dk[0], "dk"));
        EXPECT_TRUE(IsZero(problem.out.dv[0], "dv"));
      }
    }
  }
}

// Whole tiles of -inf before, between and after what counts, and rows that
// nothing counts for.
TEST_F(CudaBackwardNumbersTest, BiasMayHideWholeTilesAndWholeRows) {
  constexpr int64_t kColumns = 600;
  for (DType dtype : kTypes) {
    for (int64_t q_len : {5, 150}) {
      SCOPED_TRACE(
          absl::StrCat("dtype ", static_cast<int>(dtype), " q_len ", q_len));
      GradientProblem problem(
          2,
          {.dtype = dtype, .q_len = q_len, .kv_len = kColumns, .q_heads = 2});
      problem.forward.AddBias();
      problem.problem().bias = problem.forward.args.problem.bias;
      for (int64_t i = 0; i < q_len; ++i) {
        for (int64_t j = 0; j < kColumns; ++j) {
          const bool seen = i % 4 == 0   ? j >= 317
                            : i % 4 == 1 ? j < 40 || j == kColumns - 1
                            : i % 4 == 2 ? false
                                         : j >= 256 && j < 512;
          problem.forward.bias.Set(0, i, 0, j, seen ? 0.5 : -kInf);
        }
      }
      problem.Solve();
      for (bool deterministic : {false, true}) {
        Run(problem, deterministic);
        EXPECT_TRUE(problem.IsAccurate());
      }
    }
  }
}

// Softmax that is nearly one-hot: most P vanish, and dP - delta cancels.
TEST_F(CudaBackwardNumbersTest, PeakedScoresAreAccurate) {
  for (DType dtype : kTypes) {
    for (int64_t dim : {64, 128}) {
      for (float by : {8.0f, 40.0f, -8.0f}) {
        SCOPED_TRACE(absl::StrCat("dtype ", static_cast<int>(dtype), " dim ",
                                  dim, " scale by ", by));
        GradientProblem problem(3, {.dtype = dtype,
                                    .q_len = 150,
                                    .kv_len = 200,
                                    .q_heads = 2,
                                    .dim = dim,
                                    .mask = {.causal = true}});
        problem.problem().scale *= by;
        problem.Solve();
        Run(problem);
        EXPECT_TRUE(problem.IsAccurate());
      }
    }
  }
}

// Of 16-bit types bf16 alone has such numbers. Scores of every third row
// overflow, of both signs. Of the rows between, dQ is as near to what is exact
// as where no row does.
TEST_F(CudaBackwardNumbersTest, RowsBesideThoseThatOverflowStayAccurate) {
  const auto is_ordinary = [](int64_t row) { return row % 3 != 1; };
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (int64_t dim : {40, 64, 128}) {
      for (float scale : {1.0f, 8192.0f, 0x1p40f, -0x1p40f}) {
        SCOPED_TRACE(absl::StrCat("dtype ", static_cast<int>(dtype), " dim ",
                                  dim, " scale ", scale));
        const DenseShape shape = {.dtype = dtype,
                                  .q_len = 140,
                                  .kv_len = 200,
                                  .q_heads = 2,
                                  .dim = dim};
        GradientProblem clean(4, shape), mixed(4, shape);
        for (GradientProblem* problem : {&clean, &mixed}) {
          OwnedTensor& q = problem->forward.q;
          const double by = problem->problem().scale / scale;
          problem->problem().scale = scale;
          for (int64_t i = 0; i < shape.q_len; ++i) {
            for (int64_t h = 0; h < shape.q_heads; ++h) {
              for (int64_t d = 0; d < dim; ++d) {
                const bool spoilt = problem == &mixed && !is_ordinary(i);
                q.Set(0, i, h, d,
                      !spoilt        ? by * q.Get(0, i, h, d)
                      : d == i % dim ? 0x1p120
                                     : 0);
              }
            }
          }
          RunForward(*problem);
          Run(*problem);
        }
        for (int64_t i = 0; i < shape.q_len; ++i) {
          for (int64_t h = 0; h < shape.q_heads && is_ordinary(i); ++h) {
            for (int64_t d = 0; d < dim; ++d) {
              clean.out.dq.Set(0, i, h, d, mixed.out.dq.Get(0, i, h, d));
            }
          }
        }
        EXPECT_TRUE(clean.IsAccurate());
      }
    }
  }
}

}  // namespace
}  // namespace attnd
