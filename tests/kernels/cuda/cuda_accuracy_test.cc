// Random problems over the whole contract, on a GPU, judged by float64 on the
// CPU. Most of the time goes there: the problems are many small tests, to be
// spread over processes.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/launch/kernel.h"
#include "kernels/cuda/sm90/tensor_maps.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using testing::CheckForward;
using testing::DeviceTest;
using testing::ForwardOnly;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::Slack;

int problems_checked = 0;

// Says at the end how many problems this process has checked.
class CountReport : public ::testing::Environment {
 public:
  void TearDown() override {
    std::printf("%d random problems checked\n", problems_checked);
  }
};
[[maybe_unused]] const auto* const report =
    ::testing::AddGlobalTestEnvironment(new CountReport);

// Problems of one kind: seeds 0..tests * per_test - 1.
struct Family {
  std::string name;
  ProblemOptions options;
  int tests = 1, per_test = 1;
  Algorithm algorithm = Algorithm::kAuto;
  bool hopper = false;  // what sm90 takes, but for what is decoded
};

// Rows and columns over many tiles.
ProblemOptions ManyTiles() {
  ProblemOptions options = ForwardOnly();
  options.max_batch = options.max_kv_heads = 1;
  options.max_q_len = 300;
  options.max_kv_len = 700;
  return options;
}

ProblemOptions OfDims(int64_t head_dim, int64_t value_dim) {
  ProblemOptions options = ForwardOnly();
  options.max_batch = 2;
  options.max_q_len = 200;
  options.max_kv_len = 260;
  options.max_segments = 2;
  options.head_dim = head_dim;
  options.value_dim = value_dim;
  return options;
}

ProblemOptions GroupedHeads() {
  ProblemOptions options = ForwardOnly();
  options.max_kv_heads = 4;
  options.max_group = 8;
  options.max_q_len = 50;
  options.max_kv_len = 150;
  options.max_dim = 128;
  return options;
}

// What the kernels for Hopper take: 16-bit elements, aligned rows.
ProblemOptions Hopper(int64_t head_dim, int64_t value_dim) {
  ProblemOptions options = OfDims(head_dim, value_dim);
  options.dtypes = {DType::kF16, DType::kBF16};
  options.max_q_len = 300;
  options.max_kv_len = 400;
  options.max_group = 2;
  options.gap_step = 8;
  return options;
}

ProblemOptions HopperLong() {
  ProblemOptions options = Hopper(128, 128);
  options.max_q_len = 130;
  options.max_kv_len = 5000;
  options.max_batch = options.max_kv_heads = 1;
  return options;
}

// Few rows, many columns: these are cut along the columns.
ProblemOptions Decode() {
  ProblemOptions options = ForwardOnly();
  options.max_q_len = 16;
  options.max_kv_len = 5000;
  options.max_segments = 2;
  options.max_group = 8;
  options.max_dim = 128;
  return options;
}

std::vector<Family> Families() {
  std::vector<Family> families = {
      {"Contract", ForwardOnly(), 16, 75},
      {"ManyTiles", ManyTiles(), 16, 20},
      {"GroupedHeads", GroupedHeads(), 8, 30},
      {"Decode", Decode(), 16, 20},
      {"Naive", ForwardOnly(), 2, 50, Algorithm::kNaive},
      {"OnlineSoftmax", ForwardOnly(), 2, 50, Algorithm::kOnlineSoftmax},
      {"FlashAttention1", ForwardOnly(), 2, 50, Algorithm::kFlashAttention1},
      {"FlashAttention2", ForwardOnly(), 2, 50, Algorithm::kFlashAttention2},
  };
  const std::pair<int64_t, int64_t> hopper_dims[] = {
      {64, 64},   {96, 96}, {128, 128}, {192, 128}, {192, 192},
      {256, 256}, {48, 56}, {72, 80},   {128, 64},  {136, 88}};
  for (const auto& [head_dim, value_dim] : hopper_dims) {
    families.push_back({absl::StrCat("Hopper", head_dim, "And", value_dim),
                        Hopper(head_dim, value_dim), 21, 15, Algorithm::kAuto,
                        true});
  }
  families.push_back(
      {"HopperLong", HopperLong(), 8, 10, Algorithm::kAuto, true});
  const std::pair<int64_t, int64_t> dims[] = {
      {64, 64},   {80, 80},   {96, 96}, {128, 128},
      {192, 128}, {256, 256}, {40, 200}};
  for (const auto& [head_dim, value_dim] : dims) {
    families.push_back({absl::StrCat("Dims", head_dim, "And", value_dim),
                        OfDims(head_dim, value_dim), 4, 20});
  }
  return families;
}

struct Batch {
  Family family;
  int index = 0;  // which of the family's tests
};

bool AllDecoded(const Problem& p) {
  for (int64_t b = 0; b < p.batch; ++b) {
    if (!cuda::IsDecode(QLen(p, b))) return false;
  }
  return true;
}

// Whether sm90's kernels run the problem, of which not all is decoded, on a GPU
// that has them.
::testing::AssertionResult IsForHopper(const Problem& p) {
  const auto gpu = cuda::CurrentGpu();
  if (!gpu.ok()) return ::testing::AssertionFailure() << gpu.status();
  if (!gpu->is_hopper()) {
    return ::testing::AssertionSuccess();
  }
  const std::string name = cuda::ForwardKernel(p, Algorithm::kAuto, *gpu).name;
  if (!absl::StartsWith(name, "cuda/sm90/")) {
    return ::testing::AssertionFailure() << name;
  }
  if (!cuda::sm90::MakeTensorMaps({p, {}, {}}, 64).has_value()) {
    return ::testing::AssertionFailure() << "no tensor maps";
  }
  return ::testing::AssertionSuccess();
}

class CudaAccuracyTest : public DeviceTest,
                         public ::testing::WithParamInterface<Batch> {};

TEST_P(CudaAccuracyTest, IsAccurate) {
  const Family& family = GetParam().family;
  const int first = GetParam().index * family.per_test;
  for (int seed = first; seed < first + family.per_test; ++seed) {
    const RandomProblem problem(seed, family.options);
    const auto supports =
        cuda::SupportsForward(problem.problem(), family.algorithm);
    if (family.algorithm == Algorithm::kOnlineSoftmax) {
      ASSERT_TRUE(absl::IsUnimplemented(supports));
      GTEST_SKIP() << supports.message();
    }
    ASSERT_TRUE(supports.ok()) << supports;
    if (family.hopper) {
      if (AllDecoded(problem.problem())) continue;  // by other kernels
      ASSERT_TRUE(IsForHopper(problem.problem()));
    }
    const auto run = [&](const ForwardArgs& args) {
      return device().Forward({&args, 1}, family.algorithm).status();
    };
    ASSERT_TRUE(CheckForward(problem, run, Slack::kApproximations));
    ++problems_checked;
  }
}

std::vector<Batch> Batches() {
  std::vector<Batch> batches;
  for (const Family& family : Families()) {
    for (int i = 0; i < family.tests; ++i) batches.push_back({family, i});
  }
  return batches;
}

std::string Name(const ::testing::TestParamInfo<Batch>& info) {
  return absl::StrCat(info.param.family.name, "Batch", info.param.index);
}

INSTANTIATE_TEST_SUITE_P(Random, CudaAccuracyTest,
                         ::testing::ValuesIn(Batches()), Name);

// One type at a time, and enough elements: no allowance but the contract's own.
struct Large {
  DType dtype;
  int index;
};
class CudaLargeProblemTest : public DeviceTest,
                             public ::testing::WithParamInterface<Large> {};

TEST_P(CudaLargeProblemTest, NeedsNoSlack) {
  ProblemOptions options = ForwardOnly();
  options.dtypes = {GetParam().dtype};
  options.max_q_len = options.max_kv_len = 250;
  options.max_segments = 2;
  options.empty_sizes = options.odd_scales = false;
  const auto run = [&](const ForwardArgs& args) {
    return device().Forward({&args, 1}).status();
  };
  const int first = GetParam().index * 50;
  for (int seed = first; seed < first + 50; ++seed) {
    const RandomProblem problem(seed, options);
    if (!problem.IsLarge()) continue;
    EXPECT_TRUE(CheckForward(problem, run, Slack::kNone));
    ++problems_checked;
  }
}

std::vector<Large> LargeProblems() {
  std::vector<Large> all;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int i = 0; i < 4; ++i) all.push_back({dtype, i});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Random, CudaLargeProblemTest,
                         ::testing::ValuesIn(LargeProblems()));

// What the tests above are worth; needs no GPU.
TEST(CudaAccuracyPlanTest, CoversTheContract) {
  int any = 0, hopper = 0;
  for (const Family& family : Families()) {
    if (family.algorithm != Algorithm::kAuto) continue;
    const int planned = family.tests * family.per_test;
    if (!family.hopper) any += planned;
    // Not all of them run there. Lengths are drawn before dims and data: small
    // dims are as good, and draw sooner.
    ProblemOptions options = family.options;
    options.head_dim = options.value_dim = 8;
    for (int seed = 0; family.hopper && seed < planned; ++seed) {
      const RandomProblem problem(seed, options);
      if (!AllDecoded(problem.problem())) ++hopper;
    }
  }
  std::printf(
      "%d random problems planned for any fast kernel, %d for those for "
      "Hopper\n",
      any, hopper);
  EXPECT_GE(any, 2000);
  EXPECT_GE(hopper, 2000);
}

TEST(CudaAccuracyPlanTest, DrawsViewsThatAreAlignedAndViewsThatAreNot) {
  int aligned = 0, misaligned = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const RandomProblem problem(seed, ForwardOnly());
    const ConstTensorView& q = problem.problem().q;
    const int64_t row_bytes = SizeOf(q.dtype) * q.head_stride;
    const bool is_aligned =
        reinterpret_cast<uintptr_t>(q.data) % 16 == 0 && row_bytes % 16 == 0;
    ++(is_aligned ? aligned : misaligned);
  }
  EXPECT_GE(aligned, 50);
  EXPECT_GE(misaligned, 50);
}

}  // namespace
}  // namespace attnd
