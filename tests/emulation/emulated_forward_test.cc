// Forward on emulated GPUs, judged by float64: each test is one random problem.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulation/emulated_gpu.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/chained_forward.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/jump_problem.h"
#include "tests/kernels/random_problem.h"
#include "tests/thinned.h"

namespace attnd::emulation {
namespace {

using testing::CheckForward;
using testing::DenseProblem;
using testing::FallAt;
using testing::ForwardOnly;
using testing::JumpProblem;
using testing::PeakAt;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::RiseAt;
using testing::Shares;
using testing::Slack;
using testing::StairsAt;
using testing::Thinned;

// Problems for kernels that are built, seeds 0 to problems - 1.
struct Family {
  std::string name;
  cuda::Gpu gpu;
  ProblemOptions options;
  int problems;
};

ProblemOptions OfDims(DType dtype, int64_t head_dim, int64_t value_dim) {
  ProblemOptions options = ForwardOnly();
  options.dtypes = {dtype};
  options.head_dim = head_dim;
  options.value_dim = value_dim;
  options.max_batch = options.max_group = options.max_segments = 2;
  options.max_q_len = 200;
  options.max_kv_len = 260;
  return options;
}

// As the copy engine must have it.
ProblemOptions Hopper(DType dtype, int64_t head_dim, int64_t value_dim) {
  ProblemOptions options = OfDims(dtype, head_dim, value_dim);
  options.gap_step = 8;
  return options;
}

ProblemOptions HopperLong() {
  ProblemOptions options = Hopper(DType::kF16, 64, 64);
  options.max_kv_len = 1500;
  options.max_q_len = 150;
  options.max_batch = options.max_kv_heads = 1;
  return options;
}

ProblemOptions Decode(DType dtype, int64_t dim) {
  ProblemOptions options = OfDims(dtype, dim, dim);
  options.max_q_len = 16;
  options.max_kv_len = 1000;
  options.max_group = 8;
  return options;
}

// Of more columns than a part has.
ProblemOptions DecodeParts() {
  ProblemOptions options = Decode(DType::kF16, 64);
  options.max_kv_len = 9000;
  options.max_batch = options.max_kv_heads = options.max_segments = 1;
  options.masks = options.lens = false;
  return options;
}

// A kernel that is built, and how many columns it works on at once.
struct JumpKernel {
  std::string name;
  cuda::Gpu gpu;
  DType dtype;
  int64_t dim, tile_columns, kv_len;

  friend void PrintTo(const JumpKernel& kernel, std::ostream* out) {
    *out << kernel.name;
  }
};

std::vector<Family> Families() {
  constexpr DType kF16 = DType::kF16, kBF16 = DType::kBF16;
  return {
      {"Float32", kAmpere, OfDims(DType::kF32, 64, 64), 10},
      {"Float32Dims", kAmpere, OfDims(DType::kF32, 40, 23), 6},
      {"Prefill64", kAmpere, OfDims(kF16, 64, 64), 10},
      {"Prefill128", kAmpere, OfDims(kBF16, 128, 128), 6},
      {"PrefillDims", kAmpere, OfDims(kBF16, 100, 111), 6},
      {"Decode64", kAmpere, Decode(kF16, 64), 10},
      {"Decode128", kHopper, Decode(kBF16, 128), 6},
      {"Decode256", kHopper, Decode(kBF16, 256), 4},
      {"DecodeParts", kAmpere, DecodeParts(), 6},
      {"Hopper64", kHopper, Hopper(kF16, 64, 64), 16},
      {"Hopper128", kHopper, Hopper(kBF16, 128, 128), 16},
      {"Hopper256", kHopper, Hopper(kBF16, 256, 256), 8},
      {"HopperDims", kHopper, Hopper(kBF16, 104, 72), 8},
      {"HopperLong", kHopper, HopperLong(), 6},
  };
}

struct Case {
  Family family;
  int seed = 0;

  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.family.name << ", seed " << c.seed;
  }
};

class EmulatedForwardTest : public ::testing::TestWithParam<Case> {};

// Every second one is behind another in a group.
TEST_P(EmulatedForwardTest, IsAccurate) {
  const Family& family = GetParam().family;
  const int seed = GetParam().seed;
  const RandomProblem problem(seed, family.options);
  const RandomProblem other(1000 + seed, family.options);
  auto other_out = other.MakeForwardOutputs();
  EmulatedGpu gpu(family.gpu, seed);
  EXPECT_TRUE(CheckForward(
      problem,
      [&](const ForwardArgs& args) {
        std::vector<ForwardArgs> group = {args};
        if (seed % 2 == 1)
          group.insert(group.begin(), other.Forward(other_out));
        return gpu.Forward(group);
      },
      Slack::kApproximations));
}

// Of each family so many problems, or fewer.
std::vector<Case> Cases(int most = 100) {
  std::vector<Case> cases;
  for (const Family& family : Families()) {
    for (int seed = 0; seed < std::min(most, family.problems);
         seed += testing::kProblemStep) {
      cases.push_back({family, seed});
    }
  }
  return cases;
}

std::string Name(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.family.name, "Seed", info.param.seed);
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedForwardTest,
                         ::testing::ValuesIn(Cases()), Name);

// Columns in several runs, each of which merges with what the one before gave.
class EmulatedForwardLinksTest : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedForwardLinksTest, LinksGiveTheWhole) {
  const auto& [family, seed] = GetParam();
  const RandomProblem problem(seed, family.options);
  EmulatedGpu gpu(family.gpu, seed);
  EXPECT_TRUE(CheckForward(
      problem,
      [&](const ForwardArgs& args) {
        return testing::ForwardInLinks(args, 3, seed,
                                       [&](const ForwardArgs& link) {
                                         return gpu.Forward({&link, 1});
                                       });
      },
      Slack::kApproximations));
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedForwardLinksTest,
                         ::testing::ValuesIn(Cases(3)), Name);

// Rows whose largest score jumps at a tile's first, middle or last column: by
// sizes at which what was before the jump is as good as nothing in f32, but P
// is still in its range, by smaller ones, and by larger ones.
class EmulatedForwardJumpTest : public ::testing::TestWithParam<JumpKernel> {};

TEST_P(EmulatedForwardJumpTest, EveryRowIsRight) {
  const auto& [name, gpu_info, dtype, dim, tile, columns] = GetParam();
  JumpProblem problem({dtype,
                       dim,
                       dim,
                       columns,
                       {5.5, 87.2, 87.4, 88.0, 88.6, 88.8, 127.0, 400.0},
                       Shares(20)});
  for (const std::vector<int>& levels : Thinned<std::vector<int>>(
           {RiseAt(tile, columns), FallAt(tile, columns), PeakAt(tile, columns),
            PeakAt(2 * tile - 1, columns),
            StairsAt(tile + tile / 2, columns)})) {
    problem.SetLevels(levels);
    EmulatedGpu gpu(gpu_info, 1);
    const absl::Status status = gpu.Forward({&problem.args, 1});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(problem.Check());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, EmulatedForwardJumpTest,
    ::testing::Values(
        JumpKernel{"Hopper64", kHopper, DType::kF16, 64, 128, 300},
        JumpKernel{"HopperLong64", kHopper, DType::kF16, 64, 112, 1030},
        JumpKernel{"Hopper128", kHopper, DType::kBF16, 128, 128, 300},
        JumpKernel{"Hopper256", kHopper, DType::kBF16, 256, 64, 200},
        JumpKernel{"Prefill64", kAmpere, DType::kF16, 64, 64, 200},
        JumpKernel{"Float32", kAmpere, DType::kF32, 64, 64, 200}),
    [](const auto& info) { return info.param.name; });

// Rows all of whose products are below f32's range, which makes them -inf, as
// masked scores are: they are all the same, not none.
TEST(EmulatedForwardOverflowTest, ProductsBelowTheRangeShareAlike) {
  constexpr double kSize = 0x1p65;
  for (const JumpKernel& kernel :
       {JumpKernel{"Hopper128", kHopper, DType::kBF16, 128, 128, 150},
        JumpKernel{"Hopper256", kHopper, DType::kBF16, 256, 64, 150},
        JumpKernel{"Prefill128", kAmpere, DType::kBF16, 128, 64, 150},
        JumpKernel{"Float32", kAmpere, DType::kF32, 64, 64, 150}}) {
    for (int64_t q_len : {5, 70}) {  // the first are decoded
      SCOPED_TRACE(absl::StrCat(kernel.name, " q_len ", q_len));
      DenseProblem problem(1, {.dtype = kernel.dtype,
                               .q_len = q_len,
                               .kv_len = kernel.kv_len,
                               .dim = kernel.dim});
      const auto overflows = [](int64_t row) { return row % 3 == 1; };
      for (int64_t d = 0; d < kernel.dim; ++d) {
        for (int64_t i = 0; i < q_len; ++i) {
          if (overflows(i) || d == 0) {
            problem.q.Set(0, i, 0, d, overflows(i) && d == 0 ? kSize : 0);
          }
        }
        for (int64_t j = 0; j < kernel.kv_len && d == 0; ++j) {
          problem.k.Set(0, j, 0, d, -kSize);
        }
      }
      EmulatedGpu gpu(kernel.gpu, 1);
      const absl::Status status = gpu.Forward({&problem.args, 1});
      ASSERT_TRUE(status.ok()) << status;
      for (int64_t i = 0; i < q_len; ++i) {
        const double lse = problem.lse.Get(0, 0, i);
        ASSERT_TRUE(std::isfinite(lse)) << "row " << i;
        ASSERT_EQ(lse < -1e38, overflows(i)) << "row " << i << " " << lse;
        for (int64_t d = 0; d < kernel.dim && overflows(i); ++d) {
          double mean = 0;
          for (int64_t j = 0; j < kernel.kv_len; ++j) {
            mean += problem.v.Get(0, j, 0, d) / kernel.kv_len;
          }
          ASSERT_NEAR(problem.o.Get(0, i, 0, d), mean,
                      0x1p-8 * std::abs(mean) + 1e-5);
        }
      }
    }
  }
}

TEST(EmulatedGpuTest, SaysThatAKernelIsNotBuilt) {
  ProblemOptions options = OfDims(DType::kBF16, 192, 192);
  options.empty_sizes = false;
  const RandomProblem problem(0, options);
  EmulatedGpu gpu(kAmpere, 0);
  auto out = problem.MakeForwardOutputs();
  const absl::Status status = gpu.Forward({problem.Forward(out)});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("not build"));
}

}  // namespace
}  // namespace attnd::emulation
