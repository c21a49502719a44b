// Huge inputs with moderate scales, on a GPU: scores far out of f32's range, or
// so large in it that their roundings are larger than any softmax can bear.

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"

namespace attnd {
namespace {

using testing::CheckResults;
using testing::DenseProblem;
using testing::DenseShape;
using testing::DeviceTest;
using testing::Slack;

// Of Q and of K. Products of the first are in f32's range, and leave it by
// their scale; those of the second are out of it.
constexpr double kSizes[] = {0x1p60, 0x1p65};
constexpr int64_t kWinners = 3;

struct Sizes {
  int64_t q_len, kv_len;
};
// Rows in tiles, and few rows whose columns are cut into parts and merged.
constexpr Sizes kShapes[] = {{70, 150}, {300, 700}, {1, 70},
                             {5, 70},   {1, 5000},  {5, 5000}};
constexpr float kScales[] = {0x1p-60f, 1.0f,     8192.0f, 0x1p40f,
                             -1.0f,    -8192.0f, -0x1p40f};

DenseShape Shape(DType dtype, const Sizes& sizes, int64_t dim) {
  return {.dtype = dtype,
          .q_len = sizes.q_len,
          .kv_len = sizes.kv_len,
          .q_heads = 2,
          .dim = dim};
}

// Of 16-bit types bf16 alone has such numbers.
class CudaOverflowTest : public DeviceTest {
 protected:
  template <class Test>
  void ForEachShape(const Test& test) {
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      for (const Sizes& sizes : kShapes) {
        for (int64_t dim : {40, 128}) {
          for (float scale : kScales) {
            SCOPED_TRACE(absl::StrCat(
                "dtype ", static_cast<int>(dtype), " q_len ", sizes.q_len,
                " kv_len ", sizes.kv_len, " dim ", dim, " scale ", scale));
            test(Shape(dtype, sizes, dim), scale);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }

  void Run(DenseProblem& problem) {
    const auto counts = device().Forward({&problem.args, 1});
    ASSERT_TRUE(counts.ok()) << counts.status();
  }
};

int64_t Winner(int64_t row, int64_t head) { return (row + head) % kWinners; }

// The key that takes all, in the first, a middle and the last part.
int64_t WinningKey(const DenseProblem& problem, int64_t winner) {
  return winner * (problem.k.tokens() - 1) / (kWinners - 1);
}

// The scores of row i and head h are size * |scale| times what the keys have
// at Winner(i, h): key(winner, w) for the key of winner w, others(j) for the
// rest.
template <class Key, class Others>
void SetScores(DenseProblem& problem, double size, float scale, const Key& key,
               const Others& others) {
  problem.args.problem.scale = scale;
  const double sign = std::copysign(1.0, scale);
  for (int64_t i = 0; i < problem.q.tokens(); ++i) {
    for (int64_t h = 0; h < problem.q.heads(); ++h) {
      for (int64_t d = 0; d < problem.q.dim(); ++d) {
        problem.q.Set(0, i, h, d, d == Winner(i, h) ? size : 0);
      }
    }
  }
  for (int64_t d = 0; d < kWinners; ++d) {
    for (int64_t j = 0; j < problem.k.tokens(); ++j) {
      problem.k.Set(0, j, 0, d, sign * others(j));
    }
    for (int64_t w = 0; w < kWinners; ++w) {
      problem.k.Set(0, WinningKey(problem, w), 0, d, sign * key(d, w));
    }
  }
}

void ExpectWinners(const DenseProblem& problem) {
  for (int64_t h = 0; h < problem.q.heads(); ++h) {
    for (int64_t i = 0; i < problem.q.tokens(); ++i) {
      ASSERT_TRUE(std::isfinite(problem.lse.Get(0, h, i)))
          << problem.lse.Get(0, h, i) << " at row " << i << " head " << h;
      const int64_t key = WinningKey(problem, Winner(i, h));
      for (int64_t d = 0; d < problem.o.dim(); ++d) {
        ASSERT_EQ(problem.o.Get(0, i, h, d), problem.v.Get(0, key, 0, d))
            << "row " << i << " head " << h << " column " << d;
      }
    }
  }
}

// The others are small, or as far below 0 as the winner is above.
TEST_F(CudaOverflowTest, TheOneHugeScoreTakesAll) {
  ForEachShape([&](const DenseShape& shape, float scale) {
    for (double size : kSizes) {
      DenseProblem problem(1, shape);
      SetScores(
          problem, size, scale,
          [size](int64_t d, int64_t w) { return d == w ? size : 0.0; },
          [size](int64_t j) { return j % 2 == 0 ? 0.5 : -size; });
      Run(problem);
      ExpectWinners(problem);
    }
  });
}

// Every score is hugely negative, all but one out of f32's range or far below
// that one.
TEST_F(CudaOverflowTest, TheLeastNegativeScoreTakesAll) {
  ForEachShape([&](const DenseShape& shape, float scale) {
    for (double size : kSizes) {
      DenseProblem problem(2, shape);
      SetScores(
          problem, size, scale,
          [size](int64_t d, int64_t w) { return d == w ? -1.0 : -size; },
          [size](int64_t) { return -size; });
      Run(problem);
      ExpectWinners(problem);
    }
  });
}

// All scores are the same: huge, of either sign.
TEST_F(CudaOverflowTest, EqualHugeScoresShareAlike) {
  ForEachShape([&](const DenseShape& shape, float scale) {
    for (double key : {0x1p60, -0x1p60, 0x1p65, -0x1p65}) {
      DenseProblem problem(3, shape);
      SetScores(
          problem, std::abs(key), scale, [&](int64_t, int64_t) { return key; },
          [&](int64_t) { return key; });
      Run(problem);
      const int64_t kv_len = problem.k.tokens();
      for (int64_t d = 0; d < problem.o.dim(); ++d) {
        double mean = 0;
        for (int64_t j = 0; j < kv_len; ++j) {
          mean += problem.v.Get(0, j, 0, d) / kv_len;
        }
        for (int64_t i = 0; i < problem.q.tokens(); ++i) {
          for (int64_t h = 0; h < problem.q.heads(); ++h) {
            ASSERT_TRUE(std::isfinite(problem.lse.Get(0, h, i)));
            ASSERT_NEAR(
                problem.o.Get(0, i, h, d), mean,
                testing::RoundingUnit(shape.dtype) * std::abs(mean) + 1e-5)
                << "row " << i << " head " << h << " column " << d << " key "
                << key;
          }
        }
      }
    }
  });
}

// Normal scores in every row, whatever the scale.
void UndoScale(DenseProblem& problem, float scale) {
  const double by = problem.args.problem.scale / scale;
  problem.args.problem.scale = scale;
  for (int64_t i = 0; i < problem.q.tokens(); ++i) {
    for (int64_t h = 0; h < problem.q.heads(); ++h) {
      for (int64_t d = 0; d < problem.q.dim(); ++d) {
        problem.q.Set(0, i, h, d, by * problem.q.Get(0, i, h, d));
      }
    }
  }
}

bool IsOrdinary(int64_t row) { return row % 3 != 1; }

// Puts the ordinary rows' results into `to`, and sees that the others' are
// numbers.
void TakeOrdinary(const DenseProblem& from, DenseProblem& to) {
  for (int64_t i = 0; i < from.q.tokens(); ++i) {
    for (int64_t h = 0; h < from.q.heads(); ++h) {
      const double lse = from.lse.Get(0, h, i);
      ASSERT_TRUE(std::isfinite(lse)) << "row " << i << " head " << h;
      if (IsOrdinary(i)) to.lse.Set(0, h, i, lse);
      for (int64_t d = 0; d < from.o.dim(); ++d) {
        const double o = from.o.Get(0, i, h, d);
        ASSERT_TRUE(std::isfinite(o)) << "row " << i << " head " << h;
        if (IsOrdinary(i)) to.o.Set(0, i, h, d, o);
      }
    }
  }
}

// Scores of every third row overflow, of both signs. The rows between are as
// near to what is exact as where no row does.
TEST_F(CudaOverflowTest, RowsBesideThoseThatOverflowStayAccurate) {
  ForEachShape([&](const DenseShape& shape, float scale) {
    DenseProblem clean(4, shape), mixed(4, shape);
    UndoScale(clean, scale);
    UndoScale(mixed, scale);
    for (int64_t i = 0; i < shape.q_len; ++i) {
      for (int64_t h = 0; h < shape.q_heads && !IsOrdinary(i); ++h) {
        for (int64_t d = 0; d < shape.dim; ++d) {
          mixed.q.Set(0, i, h, d, d == i % shape.dim ? 0x1p120 : 0);
        }
      }
    }
    Run(clean);
    Run(mixed);
    TakeOrdinary(mixed, clean);
    EXPECT_TRUE(CheckResults(clean.args.problem, shape.dtype, clean.o.Values(),
                             clean.lse.Values(), Slack::kApproximations));
  });
}

}  // namespace
}  // namespace attnd
