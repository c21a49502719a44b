// Inputs chosen for what they do to the softmax, on a GPU.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/one_hot_problem.h"

namespace attnd {
namespace {

using testing::CheckResults;
using testing::DenseProblem;
using testing::DeviceTest;
using testing::OneHotProblem;
using testing::Slack;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

class CudaNumbersTest : public DeviceTest {
 protected:
  // Runs the problem and returns what is exact.
  reference::ExactForward Run(DenseProblem& problem) {
    const auto counts = device().Forward({&problem.args, 1});
    EXPECT_TRUE(counts.ok()) << counts.status();
    return reference::OracleForward(problem.args.problem);
  }
};

// Equal infinities are 0 apart; NaN is infinitely far from anything.
double Distance(double a, double b) {
  if (a == b) return 0;
  const double distance = std::abs(a - b);
  return std::isnan(distance) ? kInf : distance;
}

double WorstLse(const DenseProblem& problem,
                const reference::ExactForward& exact) {
  const std::vector<double> lse = problem.lse.Values();
  double worst = 0;
  for (size_t i = 0; i < lse.size(); ++i) {
    worst = std::max(worst, Distance(lse[i], exact.lse[i]));
  }
  return worst;
}

double WorstO(const DenseProblem& problem,
              const reference::ExactForward& exact) {
  const std::vector<double> o = problem.o.Values();
  double worst = 0;
  for (size_t i = 0; i < o.size(); ++i) {
    worst = std::max(worst, Distance(o[i], exact.o[i]));
  }
  return worst;
}

TEST_F(CudaNumbersTest, LseIsWithin1e5OfExact) {
  double worst = 0;
  for (DType dtype : kTypes) {
    for (int64_t dim : {64, 128, 256}) {
      for (int64_t kv_len : {1, 77, 1000, 4096}) {
        for (int64_t q_len : {1, 100}) {
          DenseProblem problem(1, {.dtype = dtype,
                                   .q_len = q_len,
                                   .kv_len = kv_len,
                                   .q_heads = 2,
                                   .dim = dim});
          const double error = WorstLse(problem, Run(problem));
          EXPECT_LE(error, 1e-5)
              << "dtype " << static_cast<int>(dtype) << " dim " << dim
              << " kv_len " << kv_len << " q_len " << q_len;
          worst = std::max(worst, error);
        }
      }
    }
  }
  RecordProperty("worst_lse_error", absl::StrCat(worst));
}

TEST_F(CudaNumbersTest, HugeScalesGiveExactOneHotResults) {
  for (DType dtype : kTypes) {
    for (float scale : {1e30f, -1e30f, 3e38f, -3e38f}) {
      SCOPED_TRACE(
          absl::StrCat("dtype ", static_cast<int>(dtype), " scale ", scale));
      OneHotProblem problem(dtype, scale);
      const auto counts = device().Forward({&problem.forward, 1});
      ASSERT_TRUE(counts.ok()) << counts.status();
      problem.ExpectForward();
    }
  }
}

// Whole tiles of -inf before, between and after what counts, and rows that
// nothing counts for: the maximum so far stays -inf over some tiles.
TEST_F(CudaNumbersTest, BiasMayHideWholeTilesAndWholeRows) {
  constexpr int64_t kRows = 150, kColumns = 900;
  for (DType dtype : kTypes) {
    for (int64_t q_len : {int64_t{1}, int64_t{5}, kRows}) {
      DenseProblem problem(2, {.dtype = dtype,
                               .q_len = q_len,
                               .kv_len = kColumns,
                               .q_heads = 2,
                               .kv_heads = 1});
      problem.AddBias();
      for (int64_t i = 0; i < q_len; ++i) {
        for (int64_t j = 0; j < kColumns; ++j) {
          const bool seen = i % 4 == 0   ? j >= 517
                            : i % 4 == 1 ? j < 40 || j == kColumns - 1
                            : i % 4 == 2 ? false
                                         : j >= 256 && j < 512;
          problem.bias.Set(0, i, 0, j, seen ? 0.5 : -kInf);
        }
      }
      const auto exact = Run(problem);
      EXPECT_LE(WorstLse(problem, exact), 1e-5);
      EXPECT_LE(WorstO(problem, exact), dtype == DType::kF32 ? 1e-5 : 0.02);
      for (int64_t h = 0; h < 2; ++h) {
        if (q_len > 2) {
          EXPECT_EQ(problem.lse.Get(0, h, 2), -kInf);
          EXPECT_EQ(problem.o.Get(0, 2, h, 0), 0);
        }
      }
    }
  }
}

// Scores that rise by `rise` from one run of columns to the next, by all of it,
// against it, by a quarter and not at all in rows side by side.
void AddRise(DenseProblem& problem, double rise) {
  constexpr int64_t kRun = 50;
  constexpr double kSlopes[] = {1, -1, 0.25, 0};
  problem.args.problem.scale = 1.0f;
  for (int64_t i = 0; i < problem.q.tokens(); ++i) {
    for (int64_t d = 0; d < problem.q.dim(); ++d) {
      problem.q.Set(0, i, 0, d, problem.q.Get(0, i, 0, d) / problem.q.dim());
    }
    problem.q.Set(0, i, 0, 0, kSlopes[i % 4]);
  }
  for (int64_t j = 0; j < problem.k.tokens(); ++j) {
    problem.k.Set(0, j, 0, 0, rise * static_cast<double>(j / kRun));
  }
}

// What scores are exponentiated relative to has to move: never, once in a
// while, with every tile, by far; in rows that saw something from the start and
// in such that begin tiles later.
TEST_F(CudaNumbersTest, ScoresMayRiseFromTileToTile) {
  const Mask windows[] = {{}, {.causal = true}, {.left = 30, .right = 20}};
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (int64_t dim : {64, 96, 128, 256}) {
      for (int64_t kv_len : {430, 1200}) {
        for (double rise : {1.5, 6.0, 30.0}) {
          for (const Mask& mask : windows) {
            DenseProblem problem(4, {.dtype = dtype,
                                     .q_len = 140,
                                     .kv_len = kv_len,
                                     .dim = dim,
                                     .mask = mask});
            AddRise(problem, rise);
            const auto counts = device().Forward({&problem.args, 1});
            ASSERT_TRUE(counts.ok()) << counts.status();
            EXPECT_TRUE(CheckResults(problem.args.problem, dtype,
                                     problem.o.Values(), problem.lse.Values(),
                                     Slack::kApproximations))
                << "dtype " << static_cast<int>(dtype) << " dim " << dim
                << " kv_len " << kv_len << " rise " << rise << " causal "
                << mask.causal << " left " << mask.left;
          }
        }
      }
    }
  }
}

// A NaN of one sequence and head stays there, and is not lost.
TEST_F(CudaNumbersTest, NanStaysInItsSequenceAndHead) {
  constexpr int64_t kLen = 130;
  for (DType dtype : kTypes) {
    DenseProblem problem(3, {.dtype = dtype,
                             .batch = 2,
                             .q_len = kLen,
                             .kv_len = kLen,
                             .q_heads = 4,
                             .kv_heads = 2});
    DenseProblem clean(3, {.dtype = dtype,
                           .batch = 2,
                           .q_len = kLen,
                           .kv_len = kLen,
                           .q_heads = 4,
                           .kv_heads = 2});
    problem.k.Set(0, 7, 1, 3, std::nan(""));
    problem.v.Set(0, 90, 1, 5, kInf);
    Run(problem);
    Run(clean);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t h = 0; h < 4; ++h) {
        for (int64_t i = 0; i < kLen; ++i) {
          if (b == 0 && h >= 2) {  // the K/V head that has them
            ASSERT_TRUE(std::isnan(problem.lse.Get(b, h, i)));
            continue;
          }
          ASSERT_EQ(problem.lse.Get(b, h, i), clean.lse.Get(b, h, i));
          ASSERT_EQ(problem.o.Get(b, i, h, 0), clean.o.Get(b, i, h, 0));
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnd
