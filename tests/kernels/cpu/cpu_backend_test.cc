#include "kernels/cpu/cpu_backend.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/run_group.h"

namespace attnd {
namespace {

using testing::CheckBackward;
using testing::CheckForward;
using testing::OnEveryTarget;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::Slack;

// How many random problems; sanitizers run tens of times slower.
#if defined(__SANITIZE_THREAD__)
constexpr int kScale = 1;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int kScale = 4;
#else
constexpr int kScale = 20;
#endif

class CpuBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = CreateCpuBackend({.threads = 2});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    auto stream = backend_->NewStream();
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
  }

  ::testing::AssertionResult Forward(const RandomProblem& problem,
                                     const GroupOptions& options = {},
                                     Slack slack = Slack::kRoundings) {
    const auto run = [&](const ForwardArgs& args) {
      return testing::RunForward(*stream_, {&args, 1}, options);
    };
    return CheckForward(problem, run, slack);
  }
  ::testing::AssertionResult Backward(const RandomProblem& problem,
                                      const GroupOptions& options = {},
                                      Slack slack = Slack::kRoundings) {
    const auto run = [&](const BackwardArgs& args) {
      return testing::RunBackward(*stream_, {&args, 1}, options);
    };
    return CheckBackward(problem, run, slack);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(CpuBackendTest, ForwardIsAccurateOverTheContract) {
  OnEveryTarget([&] {
    for (int seed = 0; seed < 20 * kScale; ++seed) {
      ASSERT_TRUE(Forward(RandomProblem(seed)));
    }
  });
}

TEST_F(CpuBackendTest, BackwardIsAccurateOverTheContract) {
  OnEveryTarget([&] {
    for (int seed = 0; seed < 20 * kScale; ++seed) {
      ASSERT_TRUE(Backward(RandomProblem(seed)));
    }
  });
}

TEST_F(CpuBackendTest, IsAccurateOverManyTiles) {
  ProblemOptions options;
  options.max_batch = 1;
  options.max_q_len = 300;
  options.max_kv_len = 500;
  options.max_kv_heads = 1;
  options.max_dim = 100;
  OnEveryTarget([&] {
    for (int seed = 0; seed < 2 * kScale; ++seed) {
      const RandomProblem problem(seed, options);
      ASSERT_TRUE(Forward(problem));
      ASSERT_TRUE(Backward(problem));
    }
  });
}

TEST_F(CpuBackendTest, LargeProblemsNeedNoSlack) {
  ProblemOptions options;
  options.max_q_len = options.max_kv_len = 200;
  options.max_segments = 2;
  options.max_dim = 128;
  options.empty_sizes = options.odd_scales = false;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    options.dtypes = {dtype};
    int tried = 0;
    for (int seed = 0; tried < 1 + kScale / 3; ++seed) {
      const RandomProblem problem(seed, options);
      if (!problem.IsLarge()) continue;
      ++tried;
      OnEveryTarget([&] {
        EXPECT_TRUE(Forward(problem, {}, Slack::kNone));
        EXPECT_TRUE(Backward(problem, {}, Slack::kNone));
      });
    }
  }
}

TEST_F(CpuBackendTest, RunsTheReferenceAlgorithmsWhenAsked) {
  for (Algorithm algorithm :
       {Algorithm::kNaive, Algorithm::kOnlineSoftmax,
        Algorithm::kFlashAttention1, Algorithm::kFlashAttention2}) {
    const GroupOptions options{.algorithm = algorithm};
    for (int seed = 0; seed < 2 * kScale; ++seed) {
      const RandomProblem problem(seed);
      ASSERT_TRUE(Forward(problem, options));
      ASSERT_TRUE(Backward(problem, options));
      EXPECT_EQ(
          backend_->Kernel(Op::kForward, problem.problem(), options).algorithm,
          algorithm);
    }
  }
}

}  // namespace
}  // namespace attnd
