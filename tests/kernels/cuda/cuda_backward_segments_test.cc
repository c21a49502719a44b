// Keys in very many segments, on a GPU: their gradients are as accurate as of
// keys in one.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/gradient_problem.h"

namespace attnd {
namespace {

using testing::DeviceTest;
using testing::GradientProblem;

struct Rows {
  DType dtype;
  int64_t q_len;
};
class CudaBackwardSegmentsTest : public DeviceTest,
                                 public ::testing::WithParamInterface<Rows> {
 protected:
  // Runs a problem whose keys are cut into segments of these lengths.
  void ExpectAsWhole(const std::vector<int64_t>& lengths) {
    int64_t kv_len = 0;
    for (int64_t len : lengths) kv_len += len;
    for (const Mask& mask : {Mask{}, Mask{.causal = true, .left = 1000}}) {
      SCOPED_TRACE(absl::StrCat("causal ", mask.causal, " left ", mask.left));
      GradientProblem problem(1, {.dtype = GetParam().dtype,
                                  .q_len = GetParam().q_len,
                                  .kv_len = kv_len,
                                  .q_heads = 2,
                                  .dim = 32,
                                  .mask = mask});
      problem.Solve();
      std::vector<KvSegment> segments;
      int64_t first = 0;
      for (int64_t len : lengths) {
        segments.push_back(testing::Cut(problem.segment(), first, len));
        first += len;
      }
      BackwardArgs cut = problem.args;
      cut.problem.kv = segments;
      for (bool deterministic : {false, true}) {
        problem.PoisonOutputs();
        const auto counts =
            device().Backward({&cut, 1}, {.deterministic = deterministic});
        ASSERT_TRUE(counts.ok()) << counts.status();
        ASSERT_TRUE(problem.IsAccurate()) << "deterministic " << deterministic;
      }
    }
  }
};

TEST_P(CudaBackwardSegmentsTest, HundredsOfPagesAreAsOneSegment) {
  ExpectAsWhole(std::vector<int64_t>(300, 16));
}

// Most of them short of a block of columns, some longer, many empty.
TEST_P(CudaBackwardSegmentsTest, SegmentsOfAnyLengthAreAsOne) {
  std::mt19937 random(1);
  std::vector<int64_t> lengths(120);
  for (int64_t& len : lengths) {
    const int kind = random() % 4;
    len = kind == 0 ? 0 : kind == 1 ? random() % 150 : random() % 30;
  }
  ExpectAsWhole(lengths);
}

TEST_P(CudaBackwardSegmentsTest, NearlyEmptySegmentsAreAsOne) {
  std::vector<int64_t> lengths(1000, 0);
  for (size_t n = 3; n < lengths.size(); n += 40) lengths[n] = n % 3 + 1;
  ExpectAsWhole(lengths);
}

std::vector<Rows> AllRows() {
  std::vector<Rows> all;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t q_len : {1, 40, 130}) all.push_back({dtype, q_len});
  }
  return all;
}

std::string Name(const ::testing::TestParamInfo<Rows>& info) {
  const DType dtype = info.param.dtype;
  return absl::StrCat(dtype == DType::kF32   ? "F32"
                      : dtype == DType::kF16 ? "F16"
                                             : "Bf16",
                      "Queries", info.param.q_len);
}

INSTANTIATE_TEST_SUITE_P(Rows, CudaBackwardSegmentsTest,
                         ::testing::ValuesIn(AllRows()), Name);

}  // namespace
}  // namespace attnd
