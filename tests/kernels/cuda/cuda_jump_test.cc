// Rows whose largest score jumps by anything from 0 to 400 at, before and after
// the first column of a tile, on a GPU: in each of Hopper's forward kernels.

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/sm90/config.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/jump_problem.h"

namespace attnd {
namespace {

using cuda::sm90::ForwardShape;
using testing::DeviceTest;
using testing::FallAt;
using testing::JumpProblem;
using testing::PeakAt;
using testing::Range;
using testing::RiseAt;
using testing::Shares;
using testing::StairsAt;

// Of about a dozen tiles, the last of them cut off.
int64_t Columns(const ForwardShape& shape) {
  return shape.from > 0 ? shape.from + 53 : 701;
}

// The first, the middle and the last column of the second tile; the first of
// one in the middle; and the last of all.
std::vector<int64_t> JumpColumns(const ForwardShape& shape) {
  const int64_t columns = Columns(shape), cols = shape.cols;
  return {cols, cols + cols / 2, 2 * cols - 1, columns / cols / 2 * cols,
          columns - 1};
}

struct Pattern {
  const char* name;
  std::vector<int> (*levels)(int64_t column, int64_t columns);
};
constexpr Pattern kPatterns[] = {
    {"rise", RiseAt}, {"fall", FallAt}, {"peak", PeakAt}, {"stairs", StairsAt}};

class HopperJumpTest
    : public DeviceTest,
      public ::testing::WithParamInterface<std::tuple<DType, ForwardShape>> {};

TEST_P(HopperJumpTest, EveryRowIsRight) {
  const auto& [dtype, kernel] = GetParam();
  // More rows than are decoded.
  JumpProblem problem({dtype, kernel.dim, kernel.value_dim, Columns(kernel),
                       Range(0, 400, 0.1), Shares(17)});
  for (const Pattern& pattern : kPatterns) {
    for (int64_t column : JumpColumns(kernel)) {
      SCOPED_TRACE(absl::StrCat(pattern.name, " at column ", column));
      problem.SetLevels(pattern.levels(column, Columns(kernel)));
      const auto counts = device().Forward({&problem.args, 1});
      ASSERT_TRUE(counts.ok()) << counts.status();
      ASSERT_TRUE(problem.Check());
    }
  }
}

std::string Name(
    const ::testing::TestParamInfo<HopperJumpTest::ParamType>& info) {
  const auto& [dtype, shape] = info.param;
  return absl::StrCat(dtype == DType::kF16 ? "F16" : "BF16", "Dim", shape.dim,
                      "And", shape.value_dim, "From", shape.from);
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, HopperJumpTest,
    ::testing::Combine(::testing::Values(DType::kF16, DType::kBF16),
                       ::testing::ValuesIn(cuda::sm90::kForwardShapes)),
    Name);

using AnyGpuJumpTest = DeviceTest;

// Kernels for any GPU: those of f32, those of dims that the copy engine does
// not take, and those of few queries, whose columns are cut into parts.
TEST_F(AnyGpuJumpTest, EveryRowIsRight) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t dim : {61, 124, 250}) {
      for (int64_t rows : {3, 17}) {
        const int64_t columns = rows == 3 ? 5003 : 701;
        JumpProblem problem(
            {dtype, dim, dim, columns, Range(0, 400, 0.1), Shares(rows)});
        for (const Pattern& pattern : kPatterns) {
          for (int64_t column : {63, 64, 511, 700}) {
            SCOPED_TRACE(absl::StrCat("dim ", dim, ", ", rows, " rows, ",
                                      pattern.name, " at column ", column));
            problem.SetLevels(pattern.levels(column, columns));
            const auto counts = device().Forward({&problem.args, 1});
            ASSERT_TRUE(counts.ok()) << counts.status();
            ASSERT_TRUE(problem.Check());
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnd
