// Rows that see nothing and columns that nothing sees, on a GPU: their
// gradients are 0, every time. They are where blocks of threads come and go
// without work, so that a fault may depend on who is faster: everything runs
// many times.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/gradient_problem.h"
#include "tests/kernels/cuda/hiding.h"

namespace attnd {
namespace {

using testing::DenseShape;
using testing::DeviceTest;
using testing::GradientProblem;
using testing::Hiding;
using testing::HidingProblem;
using testing::Hidings;
using testing::kHidingBatch;
using testing::OwnedRows;
using testing::OwnedTensor;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int kRuns = 12;

struct HidingBackward {
  explicit HidingBackward(const DenseShape& shape) : dense(1, shape) {
    // Any delta will do.
    dense.args.delta = std::as_const(dense.d_lse).view();
    dense.args.o = {};
  }

  // LSE as the rows that see something may have it. The others': as when there
  // are no other columns, or when there are.
  void SetLse(bool alone) {
    OwnedRows& lse = dense.forward.lse;
    lse.Poison();
    for (int64_t b = 0; b < hiding.problem.batch; ++b) {
      for (int64_t i = 0; i < QLen(hiding.problem, b); ++i) {
        const double value = alone && !hiding.Sees(b, i) ? -kInf : 4.5;
        for (int64_t h = 0; h < hiding.problem.q_heads; ++h) {
          lse.Set(b, h, i, value);
        }
      }
    }
  }

  GradientProblem dense;
  HidingProblem hiding{dense.args.problem, dense.out.segments};
};

// Whether tokens that nothing comes from are 0, and others are numbers.
template <class HasGradient>
::testing::AssertionResult IsZeroBut(const HasGradient& has_gradient,
                                     const OwnedTensor& t, const char* name) {
  for (int64_t b = 0; b < t.batch(); ++b) {
    for (int64_t i = 0; i < t.tokens(); ++i) {
      const bool has = has_gradient(b, i);
      for (int64_t h = 0; h < t.heads(); ++h) {
        for (int64_t d = 0; d < t.dim(); ++d) {
          const double value = t.Get(b, i, h, d);
          if (has ? std::isfinite(value) : value == 0) continue;
          return ::testing::AssertionFailure()
                 << name << " of token " << i << " of sequence " << b
                 << " head " << h << " is " << value << " at " << d
                 << (has ? "" : ", must be 0");
        }
      }
    }
  }
  return ::testing::AssertionSuccess();
}

struct Kind {
  DType dtype;
  int64_t dim;
};
class CudaBackwardEmptyRowsTest : public DeviceTest,
                                  public ::testing::WithParamInterface<Kind> {
 protected:
  void RunMany(int64_t q_len, const Hiding& hiding) {
    HidingBackward problem({.dtype = GetParam().dtype,
                            .batch = kHidingBatch,
                            .q_len = q_len,
                            .kv_len = hiding.kv_len,
                            .q_heads = 8,
                            .kv_heads = 2,
                            .dim = GetParam().dim});
    GradientProblem& dense = problem.dense;
    hiding.apply(problem.hiding);
    const auto sees = [&](int64_t b, int64_t i) {
      return problem.hiding.Sees(b, i);
    };
    const auto is_seen = [&](int64_t b, int64_t j) {
      return problem.hiding.IsSeen(b, j);
    };
    for (int run = 0; run < kRuns; ++run) {
      SCOPED_TRACE(absl::StrCat(hiding.name, " q_len ", q_len, " run ", run));
      const bool deterministic = run % 2 == 1;
      problem.SetLse(run < kRuns / 2);
      dense.PoisonOutputs();
      const auto counts =
          device().Backward({&dense.args, 1}, {.deterministic = deterministic});
      ASSERT_TRUE(counts.ok()) << counts.status();
      ASSERT_TRUE(IsZeroBut(sees, dense.out.dq, "dq"));
      if (dense.problem().kv.empty()) continue;
      ASSERT_TRUE(IsZeroBut(is_seen, dense.out.dk[0], "dk"));
      ASSERT_TRUE(IsZeroBut(is_seen, dense.out.dv[0], "dv"));
    }
  }
};

TEST_P(CudaBackwardEmptyRowsTest, AllIsZeroWhereNoneSeesAnything) {
  for (int64_t q_len : {1, 17, 300}) {
    for (const Hiding& hiding : Hidings()) {
      if (hiding.all) RunMany(q_len, hiding);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CudaBackwardEmptyRowsTest, RowsAreZeroWhereOthersSeeSomething) {
  for (int64_t q_len : {1, 17, 300}) {
    for (const Hiding& hiding : Hidings()) {
      if (!hiding.all) RunMany(q_len, hiding);
      if (HasFatalFailure()) return;
    }
  }
}

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t dim : {33, 64, 128, 256}) kinds.push_back({dtype, dim});
  }
  return kinds;
}

std::string Name(const ::testing::TestParamInfo<Kind>& info) {
  const DType dtype = info.param.dtype;
  return absl::StrCat(dtype == DType::kF32   ? "F32"
                      : dtype == DType::kF16 ? "F16"
                                             : "Bf16",
                      "Dim", info.param.dim);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaBackwardEmptyRowsTest,
                         ::testing::ValuesIn(Kinds()), Name);

// What the tests above are worth; needs no GPU.
TEST(CudaBackwardEmptyRowsPlanTest, SomeColumnsAreSeenWhereSomeRowsSee) {
  for (const Hiding& hiding : Hidings()) {
    HidingBackward problem(
        {.batch = kHidingBatch, .q_len = 300, .kv_len = hiding.kv_len});
    hiding.apply(problem.hiding);
    int64_t seen = 0;
    for (int64_t b = 0; b < kHidingBatch; ++b) {
      for (int64_t j = 0; j < hiding.kv_len; ++j) {
        seen += problem.hiding.IsSeen(b, j);
      }
    }
    EXPECT_EQ(seen == 0, hiding.all) << hiding.name;
  }
}

}  // namespace
}  // namespace attnd
