#include "kernels/reference/reference.h"

#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"
#include "tests/thinned.h"

namespace attnd {
namespace {

using testing::CheckBackward;
using testing::CheckForward;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::Slack;

constexpr int kProblems = 200 / testing::kProblemStep;

class EveryAlgorithm : public ::testing::TestWithParam<Algorithm> {};

TEST_P(EveryAlgorithm, ForwardIsAccurateOverTheContract) {
  for (int seed = 0; seed < kProblems; ++seed) {
    const RandomProblem problem(seed);
    ASSERT_TRUE(CheckForward(problem, [&](const ForwardArgs& args) {
      return reference::Forward(args, GetParam());
    }));
  }
}

TEST_P(EveryAlgorithm, BackwardIsAccurateOverTheContract) {
  for (int seed = 0; seed < kProblems; ++seed) {
    const RandomProblem problem(seed);
    ASSERT_TRUE(CheckBackward(problem, [&](const BackwardArgs& args) {
      return reference::Backward(args, GetParam());
    }));
  }
}

// Enough elements for errors to be told apart from luck.
ProblemOptions Large() {
  ProblemOptions options;
  options.max_q_len = options.max_kv_len = 200;
  options.max_segments = 2;
  options.max_dim = 64;
  options.empty_sizes = options.odd_scales = false;
  return options;
}

TEST_P(EveryAlgorithm, LargeProblemsNeedNoSlack) {
  int tried = 0;
  for (int seed = 0; seed < 80 / testing::kProblemStep; ++seed) {
    const RandomProblem problem(seed, Large());
    if (!problem.IsLarge()) continue;
    ++tried;
    EXPECT_TRUE(CheckForward(
        problem,
        [&](const ForwardArgs& args) {
          return reference::Forward(args, GetParam());
        },
        Slack::kNone));
    EXPECT_TRUE(CheckBackward(
        problem,
        [&](const BackwardArgs& args) {
          return reference::Backward(args, GetParam());
        },
        Slack::kNone));
  }
  EXPECT_GE(tried, 10 / testing::kProblemStep);
}

INSTANTIATE_TEST_SUITE_P(Reference, EveryAlgorithm,
                         ::testing::Values(Algorithm::kNaive,
                                           Algorithm::kOnlineSoftmax,
                                           Algorithm::kFlashAttention1,
                                           Algorithm::kFlashAttention2),
                         [](const auto& info) -> std::string {
                           switch (info.param) {
                             case Algorithm::kNaive:
                               return "Naive";
                             case Algorithm::kOnlineSoftmax:
                               return "OnlineSoftmax";
                             case Algorithm::kFlashAttention1:
                               return "FlashAttention1";
                             default:
                               return "FlashAttention2";
                           }
                         });

}  // namespace
}  // namespace attnd
