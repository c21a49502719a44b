// Backward of large problems on a GPU, judged by float64 on the CPU.

#include <cstdint>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/gradient_problem.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using testing::CheckBackward;
using testing::DeviceTest;
using testing::GradientProblem;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::Slack;

// One type at a time, and enough elements: no allowance but the contract's own.
// Not of f32, beside whose roundings special functions are not exact.
struct Large {
  DType dtype;
  int index;
};
class CudaBackwardLargeProblemTest
    : public DeviceTest,
      public ::testing::WithParamInterface<Large> {};

TEST_P(CudaBackwardLargeProblemTest, NeedsNoSlack) {
  ProblemOptions options;
  options.dtypes = {GetParam().dtype};
  options.max_q_len = options.max_kv_len = 250;
  options.max_segments = 2;
  options.empty_sizes = options.odd_scales = false;
  const int first = GetParam().index * 50;
  for (int seed = first; seed < first + 50; ++seed) {
    const RandomProblem problem(seed, options);
    if (!problem.IsLarge()) continue;
    const auto run = [&](const BackwardArgs& args) {
      return device()
          .Backward({&args, 1}, {.deterministic = seed % 2 == 1})
          .status();
    };
    EXPECT_TRUE(CheckBackward(problem, run, Slack::kNone));
  }
}

std::vector<Large> LargeProblems() {
  std::vector<Large> all;
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (int i = 0; i < 4; ++i) all.push_back({dtype, i});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Random, CudaBackwardLargeProblemTest,
                         ::testing::ValuesIn(LargeProblems()));

// Sequences over many tiles both ways, or one way.
struct Long {
  int64_t q_len, kv_len;
  int64_t dim;
  Mask mask = {};
};
class CudaBackwardLongProblemTest
    : public DeviceTest,
      public ::testing::WithParamInterface<std::tuple<DType, Long>> {};

TEST_P(CudaBackwardLongProblemTest, IsAccurate) {
  const auto& [dtype, shape] = GetParam();
  GradientProblem problem(11, {.dtype = dtype,
                               .q_len = shape.q_len,
                               .kv_len = shape.kv_len,
                               .dim = shape.dim,
                               .mask = shape.mask});
  problem.Solve();
  for (bool deterministic : {false, true}) {
    problem.PoisonOutputs();
    const auto counts =
        device().Backward({&problem.args, 1}, {.deterministic = deterministic});
    ASSERT_TRUE(counts.ok()) << counts.status();
    EXPECT_TRUE(problem.IsAccurate()) << "deterministic " << deterministic;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Long, CudaBackwardLongProblemTest,
    ::testing::Combine(
        ::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
        ::testing::Values(Long{1000, 1000, 64}, Long{700, 1100, 128},
                          Long{1300, 1300, 64, {.causal = true}},
                          Long{1100, 1100, 128, {.causal = true}},
                          Long{700, 700, 256, {.causal = true}},
                          Long{2000, 2000, 64, {.causal = true, .left = 300}},
                          Long{60, 10000, 64}, Long{10000, 60, 64})));

}  // namespace
}  // namespace attnd
