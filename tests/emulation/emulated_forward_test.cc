// Forward on emulated GPUs, judged by float64: each test is one random problem.

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulation/emulated_gpu.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"

namespace attnd::emulation {
namespace {

using testing::CheckForward;
using testing::ForwardOnly;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::Slack;

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

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Family& family : Families()) {
    for (int seed = 0; seed < family.problems; seed += ATTND_PROBLEM_STEP) {
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
