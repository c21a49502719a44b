// Backward that adds to gradients that were there before, on the CPU.

#include <cstdint>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/added_gradient_checks.h"
#include "tests/kernels/chained_backward.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/run_group.h"
#include "tests/thinned.h"

namespace attnd::cpu {
namespace {

using testing::OnEveryTarget;
using testing::ProblemOptions;
using testing::RandomProblem;

class CpuAddedGradientsTest : public ::testing::Test {
 protected:
  testing::BackwardFn Run(Algorithm algorithm = Algorithm::kAuto) {
    return [this, algorithm](const BackwardArgs& args) {
      return testing::RunBackward(*stream_, {&args, 1},
                                  {.algorithm = algorithm});
    };
  }
  // In place where the seed is odd.
  ::testing::AssertionResult InLinks(const RandomProblem& problem, int links,
                                     uint32_t seed,
                                     Algorithm algorithm = Algorithm::kAuto) {
    return testing::CheckBackward(
        problem,
        [&](const BackwardArgs& args) {
          return testing::BackwardInLinks(args, links, seed, seed % 2 == 1,
                                          Run(algorithm));
        },
        // A sum of several terms is rounded more often.
        testing::Slack::kApproximations);
  }

  const std::unique_ptr<Backend> backend_ =
      CreateCpuBackend({.threads = 2}).value();
  const std::unique_ptr<Stream> stream_ = backend_->NewStream().value();
};

TEST_F(CpuAddedGradientsTest, LinksGiveTheWhole) {
  OnEveryTarget([&] {
    for (int seed = 0; seed < 100 / testing::kProblemStep; ++seed) {
      const RandomProblem problem(seed);
      ASSERT_TRUE(InLinks(problem, 4, seed)) << problem.Describe();
    }
  });
}

TEST_F(CpuAddedGradientsTest, LinksGiveTheWholeByThePapersAlgorithms) {
  for (const Algorithm algorithm :
       {Algorithm::kNaive, Algorithm::kFlashAttention1}) {
    for (int seed = 0; seed < 20 / testing::kProblemStep; ++seed) {
      const RandomProblem problem(seed);
      ASSERT_TRUE(InLinks(problem, 3, seed, algorithm)) << problem.Describe();
    }
  }
}

// dQ is put together by a task of its own where columns are shared out.
TEST_F(CpuAddedGradientsTest, ManyColumns) {
  ProblemOptions options;
  options.max_batch = options.max_kv_heads = 1;
  options.max_kv_len = 1500;
  options.max_dim = 64;
  OnEveryTarget([&] {
    for (int seed = 0; seed < 12 / testing::kProblemStep; ++seed) {
      const RandomProblem problem(seed, options);
      ASSERT_TRUE(InLinks(problem, 3, seed)) << problem.Describe();
    }
  });
}

TEST_F(CpuAddedGradientsTest, BothAreAdded) {
  testing::ExpectBothAreAdded(Run());
}

TEST_F(CpuAddedGradientsTest, GradientsAreKeptWhereNothingIsAdded) {
  testing::ExpectGradientsAreKeptWhereNothingIsAdded(Run());
}

TEST_F(CpuAddedGradientsTest, TheSameBitsInPlace) {
  testing::ExpectTheSameBitsInPlace(Run());
}

TEST_F(CpuAddedGradientsTest, NothingIsAddedToWhatIsNotWanted) {
  testing::ExpectNothingIsAddedToWhatIsNotWanted(Run());
}

}  // namespace
}  // namespace attnd::cpu
