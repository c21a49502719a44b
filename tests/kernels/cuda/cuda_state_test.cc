// Forward that merges with what came before it, on a GPU.

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/chained_forward.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/state_checks.h"

namespace attnd {
namespace {

using testing::CheckForward;
using testing::CheckResults;
using testing::DenseProblem;
using testing::DeviceTest;
using testing::ForwardInLinks;
using testing::ForwardOnly;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::Slack;

class CudaStateTest : public DeviceTest {
 protected:
  testing::ForwardFn Run() {
    return [this](const ForwardArgs& args) {
      return device().Forward({&args, 1}).status();
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

// Few rows, whose columns are shared out among blocks of threads.
ProblemOptions Decoded(int64_t dim) {
  ProblemOptions options = ForwardOnly();
  options.max_q_len = 16;
  options.max_kv_len = 5000;
  options.max_group = 8;
  options.head_dim = options.value_dim = dim;
  return options;
}

// What sm90 takes; long ones from 1,024 columns on have kernels of their own.
ProblemOptions Hopper(int64_t head_dim, int64_t value_dim, int64_t kv_len) {
  ProblemOptions options = ForwardOnly();
  options.dtypes = {DType::kF16, DType::kBF16};
  options.max_batch = 2;
  options.max_q_len = 300;
  options.max_kv_len = kv_len;
  options.max_segments = 2;
  options.max_group = 2;
  options.gap_step = 8;
  options.head_dim = head_dim;
  options.value_dim = value_dim;
  return options;
}

std::vector<Family> Families() {
  std::vector<Family> families = {{"Contract", ForwardOnly(), 200},
                                  {"Decoded64", Decoded(64), 40},
                                  {"Decoded128", Decoded(128), 20}};
  const std::pair<int64_t, int64_t> dims[] = {
      {64, 64},   {96, 96},   {128, 128}, {192, 128},
      {192, 192}, {256, 256}, {72, 80},   {136, 88}};
  for (const auto& [head_dim, value_dim] : dims) {
    const std::string name = absl::StrCat("Hopper", head_dim, "And", value_dim);
    families.push_back({name, Hopper(head_dim, value_dim, 500), 40});
    families.push_back(
        {absl::StrCat(name, "Long"), Hopper(head_dim, value_dim, 4000), 10});
  }
  return families;
}

class CudaLinksTest : public CudaStateTest,
                      public ::testing::WithParamInterface<Family> {};

TEST_P(CudaLinksTest, LinksGiveTheWhole) {
  for (int seed = 0; seed < GetParam().problems; ++seed) {
    const RandomProblem problem(seed, GetParam().options);
    ASSERT_TRUE(CheckForward(
        problem,
        [&](const ForwardArgs& args) {
          return ForwardInLinks(args, 4, seed, Run());
        },
        Slack::kApproximations))
        << problem.Describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Random, CudaLinksTest, ::testing::ValuesIn(Families()),
                         [](const auto& info) { return info.param.name; });

// More tiles than a GPU has blocks of threads, so that each computes several,
// one after another.
TEST_F(CudaStateTest, ManyTilesInLinks) {
  for (int64_t dim : {64, 128}) {
    SCOPED_TRACE(dim);
    DenseProblem problem(1, {.q_len = 1500,
                             .kv_len = 1100,
                             .q_heads = 16,
                             .kv_heads = 4,
                             .dim = dim,
                             .mask = {.causal = true}});
    problem.o.Poison();
    problem.lse.Poison();
    const auto status = ForwardInLinks(problem.args, 3, 2, Run());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(CheckResults(problem.args.problem, problem.o.dtype(),
                             problem.o.Values(), problem.lse.Values(),
                             Slack::kApproximations));
  }
}

// Tiles with scores that are too large for the fast way are done again, and
// still merge once.
TEST_F(CudaStateTest, LargeScoresInLinks) {
  DenseProblem problem(2, {.q_len = 300, .kv_len = 700, .q_heads = 2});
  for (testing::OwnedTensor* t : {&problem.q, &problem.k}) {
    for (int64_t i = 0; i < t->tokens(); i += 3) {
      for (int64_t h = 0; h < t->heads(); ++h) {
        for (int64_t d = 0; d < t->dim(); ++d) {
          t->Set(0, i, h, d, t->Get(0, i, h, d) * 0x1p12);
        }
      }
    }
  }
  problem.o.Poison();
  problem.lse.Poison();
  const auto status = ForwardInLinks(problem.args, 4, 3, Run());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(CheckResults(problem.args.problem, problem.o.dtype(),
                           problem.o.Values(), problem.lse.Values(),
                           Slack::kApproximations));
}

TEST_F(CudaStateTest, OnlySeenStatesAreRead) {
  testing::ExpectOnlySeenStatesAreRead(Run());
}

TEST_F(CudaStateTest, RowsThatSeeNothingKeepTheirState) {
  testing::ExpectRowsThatSeeNothingKeepTheirState(Run());
}

TEST_F(CudaStateTest, WeightsAreRightWhateverTheSizeOfLse) {
  testing::ExpectRightWeightsWhateverTheSizeOfLse(Run());
}

}  // namespace
}  // namespace attnd
