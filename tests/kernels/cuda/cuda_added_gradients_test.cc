// Backward that adds to gradients that were there before, on a GPU.

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/added_gradient_checks.h"
#include "tests/kernels/chained_backward.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using testing::BackwardInLinks;
using testing::CheckBackward;
using testing::DeviceTest;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::Slack;

class CudaAddedGradientsTest : public DeviceTest {
 protected:
  testing::BackwardFn Run(bool deterministic) {
    return [this, deterministic](const BackwardArgs& args) {
      return device()
          .Backward({&args, 1}, {.deterministic = deterministic})
          .status();
    };
  }
};

struct Family {
  std::string name;
  ProblemOptions options;
  int problems;
};
std::ostream& operator<<(std::ostream& out, const Family& family) {
  return out << family.name;
}

// What sm90 takes.
ProblemOptions Hopper(int64_t head_dim, int64_t value_dim) {
  ProblemOptions options;
  options.dtypes = {DType::kF16, DType::kBF16};
  options.max_batch = options.max_kv_heads = options.max_group = 2;
  options.max_q_len = options.max_kv_len = 400;
  options.max_segments = 2;
  options.gap_step = 8;
  options.bias = options.softcap = options.odd_scales = false;
  options.head_dim = head_dim;
  options.value_dim = value_dim;
  return options;
}

// By any GPU's kernels, whose dims are rounded up to these.
ProblemOptions OfDim(int64_t dim) {
  ProblemOptions options;
  options.max_q_len = options.max_kv_len = 200;
  options.head_dim = options.value_dim = dim;
  return options;
}

std::vector<Family> Families() {
  std::vector<Family> families = {{"Contract", {}, 150}};
  for (int64_t dim : {40, 64, 96, 128, 200, 256}) {
    families.push_back({absl::StrCat("Dim", dim), OfDim(dim), 20});
  }
  const std::pair<int64_t, int64_t> dims[] = {
      {64, 64},   {96, 96},   {128, 128}, {192, 128},
      {192, 192}, {256, 256}, {72, 80},   {136, 88}};
  for (const auto& [head_dim, value_dim] : dims) {
    families.push_back({absl::StrCat("Hopper", head_dim, "And", value_dim),
                        Hopper(head_dim, value_dim), 30});
  }
  return families;
}

class CudaGradientLinksTest : public CudaAddedGradientsTest,
                              public ::testing::WithParamInterface<Family> {};

TEST_P(CudaGradientLinksTest, LinksGiveTheWhole) {
  for (int seed = 0; seed < GetParam().problems; ++seed) {
    const RandomProblem problem(seed, GetParam().options);
    ASSERT_TRUE(CheckBackward(
        problem,
        [&](const BackwardArgs& args) {
          return BackwardInLinks(args, 3, seed, /*in_place=*/seed % 2 == 1,
                                 Run(/*deterministic=*/seed % 4 < 2));
        },
        Slack::kApproximations))
        << problem.Describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Random, CudaGradientLinksTest,
                         ::testing::ValuesIn(Families()),
                         [](const auto& info) { return info.param.name; });

TEST_F(CudaAddedGradientsTest, BothAreAdded) {
  testing::ExpectBothAreAdded(Run(false));
}

TEST_F(CudaAddedGradientsTest, GradientsAreKeptWhereNothingIsAdded) {
  testing::ExpectGradientsAreKeptWhereNothingIsAdded(Run(false));
}

TEST_F(CudaAddedGradientsTest, TheSameBitsInPlace) {
  testing::ExpectTheSameBitsInPlace(Run(true));
}

TEST_F(CudaAddedGradientsTest, NothingIsAddedToWhatIsNotWanted) {
  testing::ExpectNothingIsAddedToWhatIsNotWanted(Run(false));
}

}  // namespace
}  // namespace attnd
