#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/one_hot_problem.h"
#include "tests/kernels/owned_tensor.h"

namespace attnd {
namespace {

using testing::OneHotProblem;
using testing::OnEveryTarget;
using testing::OwnedTensor;

void ExpectZeros(const OwnedTensor& t, const char* name) {
  for (double x : t.Values()) ASSERT_EQ(x, 0) << name;
}

void ExpectOneHot(const OneHotProblem& problem) {
  problem.ExpectForward();
  constexpr int64_t kDim = OneHotProblem::kDim;
  std::vector<double> dv(OneHotProblem::kTokens * kDim, 0.0);
  for (int64_t h = 0; h < OneHotProblem::kHeads; ++h) {
    for (int64_t i = 0; i < OneHotProblem::kRows; ++i) {
      const int64_t key = OneHotProblem::Key(i, h);
      for (int64_t d = 0; d < kDim; ++d) {
        dv[key * kDim + d] += problem.d_o.Get(0, i, h, d);
      }
    }
  }
  ExpectZeros(problem.dq, "dq");
  ExpectZeros(problem.dk, "dk");
  ASSERT_EQ(problem.dv.Values(), dv);
}

TEST(CpuScaleTest, HugeScalesGiveExactOneHotResults) {
  const auto backend = CreateCpuBackend({.threads = 2}).value();
  const auto stream = backend->NewStream().value();
  const auto run = [&](DType dtype, float scale, Algorithm algorithm) {
    OneHotProblem problem(dtype, scale);
    const GroupOptions options{.algorithm = algorithm};
    ASSERT_TRUE(stream->Forward({&problem.forward, 1}, options).ok());
    ASSERT_TRUE(stream->Backward({&problem.backward, 1}, options).ok());
    ExpectOneHot(problem);
  };
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (float scale : {1e30f, -1e30f, 3e38f, -3e38f}) {
      SCOPED_TRACE(scale);
      OnEveryTarget([&] { run(dtype, scale, Algorithm::kAuto); });
      run(dtype, scale, Algorithm::kNaive);
      run(dtype, scale, Algorithm::kFlashAttention2);
    }
  }
}

}  // namespace
}  // namespace attnd
