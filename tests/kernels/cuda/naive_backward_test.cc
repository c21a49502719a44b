// Naive backward on a GPU, in both orders and each way that it multiplies,
// judged by float64.

#include "kernels/cuda/baselines/naive/naive_backward.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/baselines/naive/cublas.h"
#include "kernels/cuda/baselines/naive/naive.h"
#include "kernels/cuda/device/status.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/gradient_problem.h"
#include "tests/kernels/cuda/large_scores.h"
#include "tests/kernels/one_hot_problem.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using cuda::LaunchCounts;
using cuda::NaiveBackwardOptions;
using cuda::NaiveOrder;
using cuda::Workspace;
using testing::GradientProblem;
using testing::LargeScores;
using testing::OneHotProblem;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::RandomProblem;
using Group = absl::Span<const BackwardArgs>;

// With scratch that is NaN, so that what is read before it is written shows.
absl::StatusOr<LaunchCounts> Enqueue(Group group, Workspace& workspace,
                                     const NaiveBackwardOptions& options) {
  int64_t bytes = 0;
  for (const BackwardArgs& args : group)
    bytes = std::max(
        bytes, cuda::NaiveBackwardScratchBytes(args.problem, options.order));
  absl::StatusOr<std::byte*> scratch = workspace.Scratch(bytes);
  if (!scratch.ok()) return scratch.status();
  absl::Status status =
      cuda::ToStatus(cudaMemsetAsync(*scratch, 0xff, bytes, workspace.stream()),
                     "poisoning scratch");
  if (!status.ok()) return status;
  return cuda::EnqueueNaiveBackward(group, workspace, options);
}

class NaiveBackwardTest
    : public testing::DeviceTest,
      public ::testing::WithParamInterface<NaiveBackwardOptions> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && GetParam().use_cublas && !cuda::Cublas::IsPresent())
      GTEST_SKIP() << "no cuBLAS on this machine";
  }

  absl::StatusOr<LaunchCounts> Run(const std::vector<BackwardArgs>& group) {
    auto counts =
        device().BackwardEach({group}, [](Group group, Workspace& workspace) {
          return Enqueue(group, workspace, GetParam());
        });
    if (!counts.ok()) return counts.status();
    return counts->front();
  }

  void CheckRandom(const ProblemOptions& options, int problems) {
    for (int seed = 0; seed < problems; ++seed) {
      const RandomProblem problem(seed, options);
      const auto run = [&](const BackwardArgs& args) {
        return Run({args}).status();
      };
      ASSERT_TRUE(CheckBackward(problem, run, testing::Slack::kApproximations));
    }
  }

  // Makes O and LSE, which backward starts from.
  void RunForward(OneHotProblem& problem) {
    RunForward(problem.forward, false);
  }
  void RunForward(const ForwardArgs& args, bool use_cublas) {
    const auto counts = device().ForwardEach(
        {{args}}, [use_cublas](absl::Span<const ForwardArgs> group,
                               Workspace& workspace) {
          return cuda::EnqueueNaive(group, workspace,
                                    {.use_cublas = use_cublas});
        });
    ASSERT_TRUE(counts.ok()) << counts.status();
  }
};

TEST_P(NaiveBackwardTest, IsAccurateOverTheContract) { CheckRandom({}, 150); }

TEST_P(NaiveBackwardTest, IsAccurateOverManyTiles) {
  ProblemOptions options;
  options.max_batch = options.max_kv_heads = 1;
  options.max_q_len = 300;
  options.max_kv_len = 500;
  CheckRandom(options, 30);
}

TEST_P(NaiveBackwardTest, GivesExactOneHotResultsForHugeScales) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (float scale : {1e30f, -1e30f, 3e38f, -3e38f}) {
      SCOPED_TRACE(
          absl::StrCat("dtype ", static_cast<int>(dtype), " scale ", scale));
      OneHotProblem problem(dtype, scale);
      RunForward(problem);
      ASSERT_TRUE(Run({problem.backward}).ok());
      problem.ExpectBackward();
    }
  }
}

// A rounding of such scores is all of P or more, and of a bias, too, forward
// and backward must make the same.
TEST_P(NaiveBackwardTest, LargeScoresAreThoseOfForward) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (double size : {300.0, 5000.0}) {
      SCOPED_TRACE(
          absl::StrCat("dtype ", static_cast<int>(dtype), " size ", size));
      GradientProblem problem(7, {.dtype = dtype,
                                  .q_len = 70,
                                  .kv_len = 130,
                                  .q_heads = 2,
                                  .dim = 24});
      LargeScores scores(size, problem);
      problem.forward.AddBias();
      problem.problem().bias = problem.forward.args.problem.bias;
      for (int64_t i = 0; i < 70; ++i) {
        for (int64_t j = 0; j < 130; ++j)
          problem.forward.bias.Set(0, i, 0, j, std::sin(7 * i + j));
      }
      ForwardArgs forward = problem.forward.args;
      forward.problem = problem.problem();
      RunForward(forward, GetParam().use_cublas);
      ASSERT_TRUE(Run({problem.args}).ok());
      EXPECT_LE(scores.WorstOfDv(), testing::RoundingUnit(dtype) + 0x1p-20);
    }
  }
}

// As another algorithm's LSE may be, which has found the products otherwise.
TEST_P(NaiveBackwardTest, PIsAtMostOne) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(absl::StrCat("dtype ", static_cast<int>(dtype)));
    GradientProblem problem(
        7,
        {.dtype = dtype, .q_len = 70, .kv_len = 130, .q_heads = 2, .dim = 24});
    LargeScores scores(300.0, problem);
    RunForward(problem.forward.args, GetParam().use_cublas);
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 70; ++i) {
        const double lse = problem.forward.lse.Get(0, h, i);
        problem.forward.lse.Set(0, h, i, lse - 1e-4 * std::abs(lse));
      }
    }
    ASSERT_TRUE(Run({problem.args}).ok());
    EXPECT_LE(scores.WorstOfDv(), testing::RoundingUnit(dtype) + 0x1p-20);
    for (double x : problem.out.dq.Values()) ASSERT_TRUE(std::isfinite(x));
  }
}

std::vector<std::vector<uint8_t>> Bits(
    const RandomProblem::BackwardOutputs& out) {
  std::vector<std::vector<uint8_t>> bits = {out.dq.bytes()};
  for (const OwnedTensor& dk : out.dk) bits.push_back(dk.bytes());
  for (const OwnedTensor& dv : out.dv) bits.push_back(dv.bytes());
  return bits;
}

// Problems of unlike sizes share scratch, one after another.
TEST_P(NaiveBackwardTest, GivesInAGroupWhatItGivesAlone) {
  ProblemOptions options;
  options.dtypes = {DType::kBF16};
  options.head_dim = options.value_dim = 64;
  std::vector<std::unique_ptr<RandomProblem>> problems;
  std::vector<RandomProblem::BackwardOutputs> alone(6), together(6);
  std::vector<BackwardArgs> group;
  for (int n = 0; n < 6; ++n) {
    problems.push_back(std::make_unique<RandomProblem>(n, options));
    alone[n] = problems[n]->MakeBackwardOutputs();
    together[n] = problems[n]->MakeBackwardOutputs();
    ASSERT_TRUE(Run({problems[n]->Backward(alone[n])}).ok());
    group.push_back(problems[n]->Backward(together[n]));
  }
  ASSERT_TRUE(Run(group).ok());
  for (int n = 0; n < 6; ++n) EXPECT_EQ(Bits(alone[n]), Bits(together[n])) << n;
}

TEST_P(NaiveBackwardTest, CanBeCapturedOnceWarm) {
  OneHotProblem first(DType::kBF16, 1e30f), second(DType::kBF16, 1e30f);
  RunForward(first);
  RunForward(second);
  cudaGraphExec_t replay = nullptr;
  int calls = 0;
  const auto enqueue =
      [&](Group group, Workspace& workspace) -> absl::StatusOr<LaunchCounts> {
    if (calls++ == 0) return Enqueue(group, workspace, GetParam());
    const cudaStream_t stream = workspace.stream();
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    auto counts = Enqueue(group, workspace, GetParam());
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
    return counts;
  };
  const auto counts =
      device().BackwardEach({{first.backward}, {second.backward}}, enqueue);
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
  second.ExpectBackward();
}

TEST_P(NaiveBackwardTest, LaunchesNothingForACancelledProblem) {
  OneHotProblem problem(DType::kBF16, 1.0f);
  CancelToken cancel;
  cancel.Cancel();
  problem.backward.problem.cancel = &cancel;
  const auto counts = Run({problem.backward});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 0);
}

TEST_P(NaiveBackwardTest, LaunchesAKernelForEachStep) {
  OneHotProblem problem(DType::kBF16, 1.0f);
  problem.backward.problem.q_heads = 1;
  const auto counts = Run({problem.backward});
  ASSERT_TRUE(counts.ok()) << counts.status();
  const bool autograd = GetParam().order == NaiveOrder::kAutograd;
  EXPECT_EQ(counts->kernels, autograd ? 15 : 8);
}

INSTANTIATE_TEST_SUITE_P(
    All, NaiveBackwardTest,
    ::testing::Values(NaiveBackwardOptions{.use_cublas = false},
                      NaiveBackwardOptions{.use_cublas = true},
                      NaiveBackwardOptions{.use_cublas = false,
                                           .order = NaiveOrder::kAutograd},
                      NaiveBackwardOptions{.use_cublas = true,
                                           .order = NaiveOrder::kAutograd}),
    [](const auto& info) {
      return absl::StrCat(info.param.order == NaiveOrder::kAutograd
                              ? "Autograd"
                              : "Mathematical",
                          info.param.use_cublas ? "Cublas" : "Tiled");
    });

}  // namespace
}  // namespace attnd
