#include <memory>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/one_hot_problem.h"
#include "tests/kernels/run_group.h"

namespace attnd {
namespace {

using testing::OneHotProblem;
using testing::OnEveryTarget;

TEST(CpuScaleTest, HugeScalesGiveExactOneHotResults) {
  const auto backend = CreateCpuBackend({.threads = 2}).value();
  const auto stream = backend->NewStream().value();
  const auto run = [&](DType dtype, float scale, Algorithm algorithm) {
    OneHotProblem problem(dtype, scale);
    const GroupOptions options{.algorithm = algorithm};
    ASSERT_TRUE(
        testing::RunForward(*stream, {&problem.forward, 1}, options).ok());
    ASSERT_TRUE(
        testing::RunBackward(*stream, {&problem.backward, 1}, options).ok());
    problem.ExpectForward();
    problem.ExpectBackward();
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
