// Rows that see nothing, on a GPU: O is 0 and LSE -inf, every time. They are
// where blocks of threads come and go without work, so that a fault may depend
// on who is faster: everything runs many times.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/hiding.h"

namespace attnd {
namespace {

using testing::DenseProblem;
using testing::DenseShape;
using testing::DeviceTest;
using testing::Hiding;
using testing::HidingProblem;
using testing::Hidings;
using testing::kHidingBatch;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int kRuns = 20;

struct HidingForward {
  explicit HidingForward(const DenseShape& shape)
      : dense(1, shape),
        segments(dense.args.problem.kv.begin(), dense.args.problem.kv.end()) {}

  DenseProblem dense;
  std::vector<KvSegment> segments;
  HidingProblem hiding{dense.args.problem, segments};
};

// Whether rows that see nothing are as they must be, and others are numbers.
::testing::AssertionResult IsHidden(const HidingForward& of) {
  const Problem& p = of.hiding.problem;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t i = 0; i < p.q_len; ++i) {
      const bool sees = of.hiding.Sees(b, i);
      for (int64_t h = 0; h < p.q_heads; ++h) {
        const double lse = of.dense.lse.Get(b, h, i);
        bool right = sees ? std::isfinite(lse) : lse == -kInf;
        for (int64_t d = 0; d < p.value_dim && right; ++d) {
          const double o = of.dense.o.Get(b, i, h, d);
          right = sees ? std::isfinite(o) : o == 0;
        }
        if (right) continue;
        return ::testing::AssertionFailure()
               << "row " << i << " of sequence " << b << " head " << h
               << " sees " << (sees ? "something" : "nothing") << ": lse "
               << lse << ", o starts with " << of.dense.o.Get(b, i, h, 0);
      }
    }
  }
  return ::testing::AssertionSuccess();
}

struct Kind {
  DType dtype;
  int64_t dim;
};
class CudaEmptyRowsTest : public DeviceTest,
                          public ::testing::WithParamInterface<Kind> {
 protected:
  void RunMany(int64_t q_len, const Hiding& hiding) {
    SCOPED_TRACE(absl::StrCat(hiding.name, " q_len ", q_len));
    HidingForward problem({.dtype = GetParam().dtype,
                           .batch = kHidingBatch,
                           .q_len = q_len,
                           .kv_len = hiding.kv_len,
                           .q_heads = 64,
                           .kv_heads = 8,
                           .dim = GetParam().dim});
    hiding.apply(problem.hiding);
    for (int run = 0; run < kRuns; ++run) {
      problem.dense.o.Poison();
      problem.dense.lse.Poison();
      const auto counts = device().Forward({&problem.dense.args, 1});
      ASSERT_TRUE(counts.ok()) << counts.status();
      ASSERT_TRUE(IsHidden(problem)) << "in run " << run;
    }
  }
};

TEST_P(CudaEmptyRowsTest, AllRowsAreZeroWhereNoneSeesAnything) {
  for (int64_t q_len : {1, 16, 17, 300}) {
    for (const Hiding& hiding : Hidings()) {
      if (hiding.all) RunMany(q_len, hiding);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CudaEmptyRowsTest, RowsAreZeroWhereOthersSeeSomething) {
  for (int64_t q_len : {1, 16, 17, 300}) {
    for (const Hiding& hiding : Hidings()) {
      if (!hiding.all) RunMany(q_len, hiding);
      if (HasFatalFailure()) return;
    }
  }
}

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t dim : {33, 40, 64, 128}) kinds.push_back({dtype, dim});
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

INSTANTIATE_TEST_SUITE_P(Kinds, CudaEmptyRowsTest, ::testing::ValuesIn(Kinds()),
                         Name);

// What the tests above are worth; needs no GPU.
TEST(CudaEmptyRowsPlanTest, HidesWhatItSays) {
  for (const Hiding& hiding : Hidings()) {
    for (int64_t q_len : {16, 300}) {
      HidingForward problem(
          {.batch = kHidingBatch, .q_len = q_len, .kv_len = hiding.kv_len});
      hiding.apply(problem.hiding);
      int64_t seeing = 0;
      for (int64_t b = 0; b < kHidingBatch; ++b) {
        for (int64_t i = 0; i < q_len; ++i) seeing += problem.hiding.Sees(b, i);
      }
      EXPECT_EQ(seeing == 0, hiding.all) << hiding.name;
      EXPECT_LT(seeing, kHidingBatch * q_len) << hiding.name;
    }
  }
}

}  // namespace
}  // namespace attnd
