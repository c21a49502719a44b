#include "kernels/cpu/cpu_backend.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using testing::CheckBackward;
using testing::CheckForward;
using testing::OnEveryTarget;
using testing::ProblemOptions;
using testing::RandomProblem;

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
                                     const GroupOptions& options = {}) {
    return CheckForward(problem, [&](const ForwardArgs& args) {
      return stream_->Forward({&args, 1}, options);
    });
  }
  ::testing::AssertionResult Backward(const RandomProblem& problem,
                                      const GroupOptions& options = {}) {
    return CheckBackward(problem, [&](const BackwardArgs& args) {
      return stream_->Backward({&args, 1}, options);
    });
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
