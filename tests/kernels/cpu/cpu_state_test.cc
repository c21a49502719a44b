// Forward that merges with what came before it, on the CPU.

#include <cstdint>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/chained_forward.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/run_group.h"
#include "tests/kernels/state_checks.h"
#include "tests/thinned.h"

namespace attnd::cpu {
namespace {

using testing::CheckForward;
using testing::ForwardOnly;
using testing::OnEveryTarget;
using testing::ProblemOptions;
using testing::RandomProblem;

class CpuStateTest : public ::testing::Test {
 protected:
  testing::ForwardFn Run(Algorithm algorithm = Algorithm::kAuto) {
    return [this, algorithm](const ForwardArgs& args) {
      return testing::RunForward(*stream_, {&args, 1},
                                 {.algorithm = algorithm});
    };
  }
  ::testing::AssertionResult InLinks(const RandomProblem& problem, int links,
                                     uint32_t seed,
                                     Algorithm algorithm = Algorithm::kAuto) {
    return CheckForward(problem, [&](const ForwardArgs& args) {
      return testing::ForwardInLinks(args, links, seed, Run(algorithm));
    });
  }

  const std::unique_ptr<Backend> backend_ =
      CreateCpuBackend({.threads = 2}).value();
  const std::unique_ptr<Stream> stream_ = backend_->NewStream().value();
};

TEST_F(CpuStateTest, LinksGiveTheWhole) {
  OnEveryTarget([&] {
    for (int seed = 0; seed < 120 / testing::kProblemStep; ++seed) {
      const RandomProblem problem(seed, ForwardOnly());
      ASSERT_TRUE(InLinks(problem, 5, seed)) << problem.Describe();
    }
  });
}

TEST_F(CpuStateTest, LinksGiveTheWholeByThePapersAlgorithms) {
  for (const Algorithm algorithm :
       {Algorithm::kNaive, Algorithm::kFlashAttention1}) {
    for (int seed = 0; seed < 20; ++seed) {
      const RandomProblem problem(seed, ForwardOnly());
      ASSERT_TRUE(InLinks(problem, 5, seed, algorithm)) << problem.Describe();
    }
  }
}

// Whose columns are shared out among tasks, and put together by another.
TEST_F(CpuStateTest, FewQueriesAndManyKeys) {
  ProblemOptions options = ForwardOnly();
  options.max_batch = options.max_kv_heads = 1;
  options.max_q_len = 4;
  options.max_kv_len = 4000;
  options.max_dim = 64;
  OnEveryTarget([&] {
    for (int seed = 0; seed < 12 / testing::kProblemStep; ++seed) {
      ASSERT_TRUE(InLinks(RandomProblem(seed, options), 3, seed));
    }
  });
}

TEST_F(CpuStateTest, OnlySeenStatesAreRead) {
  testing::ExpectOnlySeenStatesAreRead(Run());
}

TEST_F(CpuStateTest, RowsThatSeeNothingKeepTheirState) {
  testing::ExpectRowsThatSeeNothingKeepTheirState(Run());
}

TEST_F(CpuStateTest, WeightsAreRightWhateverTheSizeOfLse) {
  testing::ExpectRightWeightsWhateverTheSizeOfLse(Run());
}

}  // namespace
}  // namespace attnd::cpu
