// Random problems over the whole contract, backward on a GPU, judged by float64
// on the CPU. Most of the time goes there: the problems are many small tests,
// to be spread over processes.

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backward.h"
#include "kernels/cuda/device/gpu.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using testing::CheckBackward;
using testing::DeviceTest;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::Slack;

int problems_checked = 0, problems_on_hopper = 0;

// Says at the end how many problems this process has checked.
class CountReport : public ::testing::Environment {
 public:
  void TearDown() override {
    std::printf(
        "%d random problems checked, %d of them in kernels for Hopper\n",
        problems_checked, problems_on_hopper);
  }
};
[[maybe_unused]] const auto* const report =
    ::testing::AddGlobalTestEnvironment(new CountReport);

// Problems of one kind: seeds 0..tests * per_test - 1, every second of them run
// deterministically.
struct Family {
  std::string name;
  ProblemOptions options;
  int tests = 1, per_test = 1;
  Algorithm algorithm = Algorithm::kAuto;
  bool hopper = false;  // made for sm90's kernels
};

// Rows and columns over many tiles.
ProblemOptions ManyTiles() {
  ProblemOptions options;
  options.max_batch = options.max_kv_heads = 1;
  options.max_q_len = 300;
  options.max_kv_len = 700;
  return options;
}

ProblemOptions OfDims(int64_t head_dim, int64_t value_dim) {
  ProblemOptions options;
  options.max_batch = options.max_kv_heads = options.max_group = 2;
  options.max_q_len = 200;
  options.max_kv_len = 260;
  options.max_segments = 2;
  options.head_dim = head_dim;
  options.value_dim = value_dim;
  return options;
}

ProblemOptions GroupedHeads() {
  ProblemOptions options;
  options.max_kv_heads = 4;
  options.max_group = 8;
  options.max_q_len = 50;
  options.max_kv_len = 100;
  options.max_dim = 128;
  return options;
}

// Blocks of columns with few rows to visit, and the other way around.
ProblemOptions FewRows() {
  ProblemOptions options;
  options.max_q_len = 16;
  options.max_kv_len = 2000;
  options.max_segments = 2;
  options.max_dim = 64;
  return options;
}
ProblemOptions FewColumns() {
  ProblemOptions options;
  options.max_q_len = 1000;
  options.max_kv_len = 16;
  options.max_dim = 64;
  return options;
}

ProblemOptions ManySegments() {
  ProblemOptions options;
  options.max_q_len = 150;
  options.max_kv_len = 30;
  options.max_segments = 20;
  options.max_dim = 64;
  return options;
}

// What kernels for Hopper take at most: 16-bit elements, aligned rows, scores
// that are products and a positive scale.
ProblemOptions Hopper(int64_t head_dim, int64_t value_dim) {
  ProblemOptions options = OfDims(head_dim, value_dim);
  options.dtypes = {DType::kF16, DType::kBF16};
  options.max_q_len = 400;
  options.max_kv_len = 400;
  options.gap_step = 8;
  options.bias = options.softcap = options.odd_scales = false;
  return options;
}

ProblemOptions HopperLong(int64_t dim) {
  ProblemOptions options = Hopper(dim, dim);
  options.max_q_len = options.max_kv_len = 1000;
  options.max_batch = options.max_kv_heads = options.max_group = 1;
  return options;
}

// Every row sees every column of its sequence.
ProblemOptions HopperFull(int64_t dim) {
  ProblemOptions options = Hopper(dim, dim);
  options.max_q_len = options.max_kv_len = 600;
  options.max_batch = options.max_kv_heads = 1;
  options.masks = options.empty_sizes = false;
  return options;
}

std::vector<Family> Families() {
  std::vector<Family> families = {
      {"Contract", {}, 16, 75},
      {"ManyTiles", ManyTiles(), 16, 15},
      {"GroupedHeads", GroupedHeads(), 8, 30},
      {"FewRows", FewRows(), 4, 20},
      {"FewColumns", FewColumns(), 4, 20},
      {"ManySegments", ManySegments(), 4, 20},
      {"Naive", {}, 2, 50, Algorithm::kNaive},
      {"FlashAttention2", {}, 2, 50, Algorithm::kFlashAttention2},
  };
  const std::pair<int64_t, int64_t> hopper_dims[] = {
      {64, 64},   {96, 96}, {128, 128}, {192, 128}, {192, 192},
      {256, 256}, {48, 56}, {72, 80},   {128, 64},  {64, 128}};
  for (const auto& [head_dim, value_dim] : hopper_dims) {
    families.push_back({absl::StrCat("Hopper", head_dim, "And", value_dim),
                        Hopper(head_dim, value_dim), 12, 24, Algorithm::kAuto,
                        true});
  }
  for (int64_t dim : {64, 128, 256}) {
    families.push_back({absl::StrCat("HopperLong", dim), HopperLong(dim), 8, 5,
                        Algorithm::kAuto, true});
    families.push_back({absl::StrCat("HopperFull", dim), HopperFull(dim), 4, 6,
                        Algorithm::kAuto, true});
  }
  const std::pair<int64_t, int64_t> dims[] = {
      {64, 64},   {80, 80},   {96, 96}, {128, 128},
      {192, 128}, {256, 256}, {40, 200}};
  for (const auto& [head_dim, value_dim] : dims) {
    families.push_back({absl::StrCat("Dims", head_dim, "And", value_dim),
                        OfDims(head_dim, value_dim), 4, 15});
  }
  return families;
}

struct Batch {
  Family family;
  int index = 0;  // which of the family's tests
};

bool IsForHopper(const Problem& p, const cuda::Gpu& gpu) {
  return absl::StartsWith(cuda::BackwardKernel(p, {}, gpu).name, "cuda/sm90/");
}

class CudaBackwardAccuracyTest : public DeviceTest,
                                 public ::testing::WithParamInterface<Batch> {};

TEST_P(CudaBackwardAccuracyTest, IsAccurate) {
  const Family& family = GetParam().family;
  const auto gpu = cuda::CurrentGpu();
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const int first = GetParam().index * family.per_test;
  for (int seed = first; seed < first + family.per_test; ++seed) {
    const RandomProblem problem(seed, family.options);
    const absl::Status supports =
        cuda::SupportsBackward(problem.problem(), family.algorithm);
    ASSERT_TRUE(supports.ok()) << supports;
    const GroupOptions options = {.algorithm = family.algorithm,
                                  .deterministic = seed % 2 == 1};
    const auto run = [&](const BackwardArgs& args) {
      return device().Backward({&args, 1}, options).status();
    };
    ASSERT_TRUE(CheckBackward(problem, run, Slack::kApproximations))
        << "deterministic " << options.deterministic;
    ++problems_checked;
    if (family.algorithm == Algorithm::kAuto) {
      problems_on_hopper += IsForHopper(problem.problem(), *gpu);
    }
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

INSTANTIATE_TEST_SUITE_P(Random, CudaBackwardAccuracyTest,
                         ::testing::ValuesIn(Batches()), Name);

// What the tests above are worth; needs no GPU.
TEST(CudaBackwardAccuracyPlanTest, CoversTheContract) {
  constexpr cuda::Gpu kHopper = {.capability = cuda::kHopperCapability,
                                 .multiprocessors = 132};
  int any = 0, hopper = 0, taken = 0;
  for (const Family& family : Families()) {
    if (family.algorithm != Algorithm::kAuto) continue;
    const int planned = family.tests * family.per_test;
    (family.hopper ? hopper : any) += planned;
    // Problems of small dims are as good, and draw sooner.
    ProblemOptions options = family.options;
    options.head_dim = options.value_dim = 8;
    options.backward = false;
    for (int seed = 0; family.hopper && seed < planned; ++seed) {
      const RandomProblem problem(seed, options);
      Problem p = problem.problem();
      p.head_dim = family.options.head_dim;
      p.value_dim = family.options.value_dim;
      taken += IsForHopper(p, kHopper);
    }
  }
  std::printf(
      "%d random problems planned for any fast kernel, %d for those for "
      "Hopper, which take %d\n",
      any, hopper, taken);
  EXPECT_GE(any, 2000);
  EXPECT_GE(hopper, 2000);
  EXPECT_GE(taken, 2000);
}

bool IsAligned(const ConstTensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 &&
         (view.batch_stride | view.token_stride | view.head_stride) % 8 == 0;
}

// As the copy engine must have them.
TEST(CudaBackwardAccuracyPlanTest, DrawsAlignedViewsForHopper) {
  for (const Family& family : Families()) {
    for (uint32_t seed = 0; family.hopper && seed < 10; ++seed) {
      const RandomProblem problem(seed, family.options);
      auto out = problem.MakeBackwardOutputs();
      const BackwardArgs args = problem.Backward(out);
      EXPECT_TRUE(IsAligned(args.problem.q)) << problem.Describe();
      EXPECT_TRUE(IsAligned(args.d_o)) << problem.Describe();
      for (const KvSegment& s : args.problem.kv) {
        EXPECT_TRUE(IsAligned(s.k)) << problem.Describe();
        EXPECT_TRUE(IsAligned(s.v)) << problem.Describe();
      }
    }
  }
}

TEST(CudaBackwardAccuracyPlanTest, DrawsViewsThatAreNotAligned) {
  int misaligned = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const RandomProblem problem(seed);
    misaligned += !IsAligned(problem.problem().q);
  }
  EXPECT_GE(misaligned, 25);
}

}  // namespace
}  // namespace attnd
