#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/jump_problem.h"
#include "tests/kernels/run_group.h"
#include "tests/thinned.h"

namespace attnd {
namespace {

using testing::FallAt;
using testing::JumpProblem;
using testing::OnEveryTarget;
using testing::PeakAt;
using testing::Range;
using testing::RiseAt;
using testing::Shares;
using testing::StairsAt;
using testing::Thinned;

// Many queries, whose tiles of K are packed, and few, which read K as it lies.
TEST(CpuJumpTest, EveryRowIsRightHoweverFarItsLargestScoreJumps) {
  constexpr int64_t kColumns = 300;
  const auto backend = CreateCpuBackend({.threads = 2}).value();
  const auto stream = backend->NewStream().value();
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t rows : {1, 17}) {
      JumpProblem problem(
          {dtype, 64, 64, kColumns, Range(0, 400, 1.6), Shares(rows)});
      for (const std::vector<int>& levels : Thinned<std::vector<int>>(
               {RiseAt(63, kColumns), FallAt(64, kColumns),
                PeakAt(191, kColumns), StairsAt(128, kColumns),
                PeakAt(299, kColumns)})) {
        OnEveryTarget([&] {
          problem.SetLevels(levels);
          ASSERT_TRUE(testing::RunForward(*stream, {&problem.args, 1}).ok());
          ASSERT_TRUE(problem.Check());
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace attnd
