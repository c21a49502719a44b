#include "kernels/reference/reference.h"

#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using testing::CheckBackward;
using testing::CheckForward;
using testing::RandomProblem;

constexpr int kProblems = 300;

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
