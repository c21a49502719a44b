// Backward on emulated GPUs, judged by float64: each test is one random
// problem, run as it comes and deterministically.

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/emulation/emulated_gpu.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"

namespace attnd::emulation {
namespace {

using testing::CheckBackward;
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
  ProblemOptions options;
  options.dtypes = {dtype};
  options.head_dim = head_dim;
  options.value_dim = value_dim;
  options.max_batch = options.max_group = options.max_segments = 2;
  options.max_q_len = 200;
  options.max_kv_len = 260;
  return options;
}

std::vector<Family> Families() {
  constexpr DType kF16 = DType::kF16, kBF16 = DType::kBF16;
  return {
      {"Float32", kAmpere, OfDims(DType::kF32, 64, 64), 10},
      {"Float32Dims", kAmpere, OfDims(DType::kF32, 40, 23), 6},
      {"Large64", kAmpere, OfDims(kF16, 64, 64), 8},
      {"Large128", kAmpere, OfDims(kBF16, 128, 128), 6},
      {"LargeDims", kAmpere, OfDims(kBF16, 100, 111), 6},
      {"Small64", kSmallAmpere, OfDims(kF16, 64, 64), 8},
      {"Small128", kSmallAmpere, OfDims(kBF16, 128, 128), 6},
      {"Small256", kSmallAmpere, OfDims(kBF16, 256, 256), 4},
  };
}

struct Case {
  Family family;
  int seed = 0;

  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.family.name << ", seed " << c.seed;
  }
};

class EmulatedBackwardTest : public ::testing::TestWithParam<Case> {};

// Every second one is behind another in a group.
TEST_P(EmulatedBackwardTest, IsAccurate) {
  const Family& family = GetParam().family;
  const int seed = GetParam().seed;
  const RandomProblem problem(seed, family.options);
  const RandomProblem other(1000 + seed, family.options);
  EmulatedGpu gpu(family.gpu, seed);
  for (bool deterministic : {false, true}) {
    auto other_out = other.MakeBackwardOutputs();
    const auto run = [&](const BackwardArgs& args) {
      std::vector<BackwardArgs> group = {args};
      if (seed % 2 == 1) {
        group.insert(group.begin(), other.Backward(other_out));
      }
      return gpu.Backward(group, deterministic);
    };
    EXPECT_TRUE(CheckBackward(problem, run, Slack::kApproximations))
        << "deterministic " << deterministic;
  }
}

// The first of each family, at most so many.
std::vector<Case> Cases(int most) {
  std::vector<Case> cases;
  for (const Family& family : Families()) {
    for (int seed = 0; seed < std::min(family.problems, most);
         seed += ATTND_PROBLEM_STEP) {
      cases.push_back({family, seed});
    }
  }
  return cases;
}

std::string Name(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.family.name, "Seed", info.param.seed);
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedBackwardTest,
                         ::testing::ValuesIn(Cases(1000)), Name);

// The memory of every output.
using Bits = std::vector<std::vector<uint8_t>>;

class EmulatedBackwardRepeatTest : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedBackwardRepeatTest, GivesTheSameBitsInAnyOrderOfEvents) {
  const Family& family = GetParam().family;
  const int seed = GetParam().seed;
  const RandomProblem problem(seed, family.options);
  std::vector<Bits> runs;
  for (int run = 0; run < 3; ++run) {
    EmulatedGpu gpu(family.gpu, 100 * run + seed);
    auto out = problem.MakeBackwardOutputs();
    const absl::Status status = gpu.Backward({problem.Backward(out)}, true);
    ASSERT_TRUE(status.ok()) << status;
    runs.push_back({out.dq.bytes()});
    for (const auto& d_k : out.dk) runs.back().push_back(d_k.bytes());
    for (const auto& d_v : out.dv) runs.back().push_back(d_v.bytes());
    EXPECT_TRUE(runs.back() == runs.front()) << problem.Describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedBackwardRepeatTest,
                         ::testing::ValuesIn(Cases(4)), Name);

}  // namespace
}  // namespace attnd::emulation
