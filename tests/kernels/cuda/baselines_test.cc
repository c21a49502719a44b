// The baselines on a GPU, each way that they multiply, judged by float64.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/baselines/flash_attention_1/flash_attention_1.h"
#include "kernels/cuda/baselines/naive/cublas.h"
#include "kernels/cuda/baselines/naive/naive.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/one_hot_problem.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using cuda::LaunchCounts;
using cuda::Workspace;
using testing::CheckForward;
using testing::CheckResults;
using testing::DenseProblem;
using testing::DeviceRunner;
using testing::DeviceTest;
using testing::ForwardOnly;
using testing::ProblemOptions;
using testing::RandomProblem;
using Group = absl::Span<const ForwardArgs>;

struct Baseline {
  std::string name;
  DeviceRunner::Enqueue enqueue;
  bool needs_cublas = false;
};

absl::StatusOr<LaunchCounts> NaiveTiled(Group group, Workspace& workspace) {
  return cuda::EnqueueNaive(group, workspace, {.use_cublas = false});
}
absl::StatusOr<LaunchCounts> NaiveCublas(Group group, Workspace& workspace) {
  absl::Status status = testing::PoisonNaiveScratch(group, workspace);
  if (!status.ok()) return status;
  return cuda::EnqueueNaive(group, workspace, {.use_cublas = true});
}

class BaselinesTest : public DeviceTest,
                      public ::testing::WithParamInterface<Baseline> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && GetParam().needs_cublas && !cuda::Cublas::IsPresent())
      GTEST_SKIP() << "no cuBLAS on this machine";
  }

  absl::StatusOr<LaunchCounts> Run(Group group) {
    auto counts = device().ForwardEach({{group.begin(), group.end()}},
                                       GetParam().enqueue);
    if (!counts.ok()) return counts.status();
    return counts->front();
  }

  void CheckRandom(const ProblemOptions& options, int problems) {
    for (int seed = 0; seed < problems; ++seed) {
      const RandomProblem problem(seed, options);
      const auto run = [&](const ForwardArgs& args) {
        return Run({&args, 1}).status();
      };
      ASSERT_TRUE(CheckForward(problem, run, testing::Slack::kApproximations));
    }
  }
};

TEST_P(BaselinesTest, IsAccurateOverTheContract) {
  CheckRandom(ForwardOnly(), 150);
}

TEST_P(BaselinesTest, IsAccurateOverManyTiles) {
  ProblemOptions options = ForwardOnly();
  options.max_batch = options.max_kv_heads = 1;
  options.max_q_len = 300;
  options.max_kv_len = 500;
  CheckRandom(options, 30);
}

TEST_P(BaselinesTest, GivesExactOneHotResultsForHugeScales) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (float scale : {1e30f, -1e30f, 3e38f, -3e38f}) {
      SCOPED_TRACE(
          absl::StrCat("dtype ", static_cast<int>(dtype), " scale ", scale));
      testing::OneHotProblem problem(dtype, scale);
      ASSERT_TRUE(Run({&problem.forward, 1}).ok());
      problem.ExpectForward();
    }
  }
}

// Rows whose positions leap: between two blocks of rows there are whole blocks
// of columns that the problem spans and no row sees.
TEST_P(BaselinesTest, IsAccurateWhereNoRowSeesABlockOfColumns) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(absl::StrCat("dtype ", static_cast<int>(dtype)));
    constexpr int64_t kRows = 66, kStride = 200;
    DenseProblem problem(1, {.dtype = dtype,
                             .q_len = kRows,
                             .kv_len = kRows * kStride,
                             .mask = {.left = 3, .right = 3}});
    problem.args.problem.q_start = 0;
    problem.args.problem.q_stride = kStride;
    ASSERT_TRUE(Run({&problem.args, 1}).ok());
    ASSERT_TRUE(CheckResults(problem.args.problem, dtype, problem.o.Values(),
                             problem.lse.Values(),
                             testing::Slack::kApproximations));
  }
}

// Problems of unlike sizes share scratch, one after another.
TEST_P(BaselinesTest, GivesInAGroupWhatItGivesAlone) {
  std::vector<std::unique_ptr<DenseProblem>> alone, together;
  std::vector<ForwardArgs> group;
  for (int n = 0; n < 6; ++n) {
    const testing::DenseShape shape = {.batch = 1 + n % 2,
                                       .q_len = 10 + 37 * n,
                                       .kv_len = 200 - 30 * n,
                                       .q_heads = 4,
                                       .kv_heads = n % 3 == 0 ? 4 : 2,
                                       .mask = {.causal = n % 2 == 1}};
    alone.push_back(std::make_unique<DenseProblem>(n, shape));
    together.push_back(std::make_unique<DenseProblem>(n, shape));
    ASSERT_TRUE(Run({&alone.back()->args, 1}).ok());
    group.push_back(together.back()->args);
  }
  ASSERT_TRUE(Run(group).ok());
  for (int n = 0; n < 6; ++n) {
    EXPECT_EQ(alone[n]->o.bytes(), together[n]->o.bytes()) << n;
    EXPECT_EQ(alone[n]->lse.bytes(), together[n]->lse.bytes()) << n;
  }
}

TEST_P(BaselinesTest, CanBeCapturedOnceWarm) {
  const testing::DenseShape shape = {
      .batch = 2, .q_len = 100, .kv_len = 130, .q_heads = 4, .kv_heads = 2};
  DenseProblem first(1, shape), second(1, shape);
  cudaGraphExec_t replay = nullptr;
  int calls = 0;
  const auto enqueue =
      [&](Group group, Workspace& workspace) -> absl::StatusOr<LaunchCounts> {
    if (calls++ == 0) return GetParam().enqueue(group, workspace);
    const cudaStream_t stream = workspace.stream();
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    auto counts = GetParam().enqueue(group, workspace);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
    return counts;
  };
  const auto counts =
      device().ForwardEach({{first.args}, {second.args}}, enqueue);
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
  EXPECT_EQ(first.o.bytes(), second.o.bytes());
  EXPECT_EQ(first.lse.bytes(), second.lse.bytes());
}

TEST_P(BaselinesTest, LaunchesNothingForACancelledProblem) {
  DenseProblem problem(1, {.q_len = 10, .kv_len = 10});
  CancelToken cancel;
  cancel.Cancel();
  problem.args.problem.cancel = &cancel;
  const auto counts = Run({&problem.args, 1});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, BaselinesTest,
    ::testing::Values(Baseline{"NaiveTiled", NaiveTiled},
                      Baseline{"NaiveCublas", NaiveCublas, true},
                      Baseline{"FlashAttention1",
                               cuda::EnqueueFlashAttention1}),
    [](const auto& info) { return info.param.name; });

class BaselineLaunchesTest : public DeviceTest {};

TEST_F(BaselineLaunchesTest, NaiveTakesEightAndFlashAttention1One) {
  DenseProblem problem(
      1, {.batch = 2, .q_len = 64, .kv_len = 64, .q_heads = 4, .kv_heads = 4});
  auto counts = device().ForwardEach({{problem.args}}, NaiveTiled);
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->front().kernels, 8);
  counts = device().ForwardEach({{problem.args}}, cuda::EnqueueFlashAttention1);
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->front().kernels, 1);
}

}  // namespace
}  // namespace attnd
