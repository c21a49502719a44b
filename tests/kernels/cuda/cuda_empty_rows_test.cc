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
#include "kernels/mask.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"

namespace attnd {
namespace {

using testing::DenseProblem;
using testing::DenseShape;
using testing::DeviceTest;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kBatch = 3, kKvLen = 70;
constexpr int kRuns = 20;

struct HidingProblem {
  explicit HidingProblem(const DenseShape& shape)
      : dense(1, shape),
        segments(dense.args.problem.kv.begin(), dense.args.problem.kv.end()) {
    dense.args.problem.kv = segments;
  }
  HidingProblem(const HidingProblem&) = delete;
  HidingProblem& operator=(const HidingProblem&) = delete;

  Problem& problem() { return dense.args.problem; }

  bool Sees(int64_t b, int64_t row) {
    if (row >= QLen(problem(), b)) return false;
    for (const KvSegment& s : segments) {
      if (!MakeRowIntervals(problem(), b, s).Row(row).empty()) return true;
    }
    return false;
  }

  DenseProblem dense;
  std::vector<KvSegment> segments;
  std::vector<int64_t> q_lens, kv_lens;
};

// What keeps rows from seeing anything.
struct Hiding {
  const char* name;
  int64_t kv_len;
  bool all;  // of the rows
  void (*apply)(HidingProblem& of);
};
const Hiding kHidings[] = {
    {"NoKeys", 0, true, [](HidingProblem&) {}},
    {"NoSegments", 0, true, [](HidingProblem& of) { of.problem().kv = {}; }},
    {"EmptySegments", kKvLen, true,
     [](HidingProblem& of) {
       of.kv_lens.assign(kBatch, 0);
       of.segments[0].lens = of.kv_lens;
       of.segments.resize(3, of.segments[0]);
       of.problem().kv = of.segments;
     }},
    {"AllKeysAhead", kKvLen, true,
     [](HidingProblem& of) {
       of.problem().mask.causal = true;
       of.problem().q_start = -of.problem().q_len - 100;
     }},
    {"AllKeysLeftOfTheWindow", kKvLen, true,
     [](HidingProblem& of) {
       of.problem().mask.left = 3;
       of.problem().q_start = kKvLen + 3;
     }},
    {"NoQueries", kKvLen, true,
     [](HidingProblem& of) {
       of.q_lens.assign(kBatch, 0);
       of.problem().q_lens = of.q_lens;
     }},
    {"FirstRowsSeeNothing", kKvLen, false,
     [](HidingProblem& of) {
       of.problem().mask.causal = true;
       of.problem().q_start = -of.problem().q_len / 2;
     }},
    {"LastRowsSeeNothing", kKvLen, false,
     [](HidingProblem& of) {
       of.problem().mask.left = 2;
       of.problem().q_start = kKvLen - 3;
     }},
    {"OneSequenceHasKeys", kKvLen, false,
     [](HidingProblem& of) {
       of.kv_lens = {0, kKvLen, 0};
       of.segments[0].lens = of.kv_lens;
     }},
    {"Padding", kKvLen, false,
     [](HidingProblem& of) {
       of.q_lens = {0, of.problem().q_len, of.problem().q_len / 2};
       of.problem().q_lens = of.q_lens;
     }},
};

// Whether rows that see nothing are as they must be, and others are numbers.
::testing::AssertionResult IsHidden(HidingProblem& of) {
  const Problem& p = of.problem();
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t i = 0; i < p.q_len; ++i) {
      const bool sees = of.Sees(b, i);
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
    HidingProblem problem({.dtype = GetParam().dtype,
                           .batch = kBatch,
                           .q_len = q_len,
                           .kv_len = hiding.kv_len,
                           .q_heads = 64,
                           .kv_heads = 8,
                           .dim = GetParam().dim});
    hiding.apply(problem);
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
    for (const Hiding& hiding : kHidings) {
      if (hiding.all) RunMany(q_len, hiding);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CudaEmptyRowsTest, RowsAreZeroWhereOthersSeeSomething) {
  for (int64_t q_len : {1, 16, 17, 300}) {
    for (const Hiding& hiding : kHidings) {
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
  for (const Hiding& hiding : kHidings) {
    for (int64_t q_len : {16, 300}) {
      HidingProblem problem(
          {.batch = kBatch, .q_len = q_len, .kv_len = hiding.kv_len});
      hiding.apply(problem);
      int64_t seeing = 0;
      for (int64_t b = 0; b < kBatch; ++b) {
        for (int64_t i = 0; i < q_len; ++i) seeing += problem.Sees(b, i);
      }
      EXPECT_EQ(seeing == 0, hiding.all) << hiding.name;
      EXPECT_LT(seeing, kBatch * q_len) << hiding.name;
    }
  }
}

}  // namespace
}  // namespace attnd
