// What backward of a group costs beside its arithmetic, on a GPU: launches,
// copies and memory.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/device/gpu.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/gradient_problem.h"

namespace attnd {
namespace {

using cuda::LaunchCounts;
using cuda::Workspace;
using testing::DenseShape;
using testing::DeviceRunner;
using testing::DeviceTest;
using testing::GradientProblem;
using testing::RandomProblem;
using Group = absl::Span<const BackwardArgs>;

// LSE and delta that any numbers will do for.
void SetAny(GradientProblem& problem) {
  problem.args.lse = problem.args.delta = std::as_const(problem.d_lse).view();
  problem.args.o = {};
}

std::vector<std::unique_ptr<GradientProblem>> MixedProblems(int count) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<std::unique_ptr<GradientProblem>> problems;
  for (int i = 0; i < count; ++i) {
    DenseShape shape{.dim = 128};
    shape.kv_len = draw(1, 512);
    shape.q_len = i % 4 == 0 ? 1 : draw(1, 256);
    shape.kv_heads = draw(1, 2);
    shape.q_heads = shape.kv_heads * draw(1, 3);
    shape.mask.causal = i % 3 == 1;
    if (i % 3 == 2) shape.mask.left = draw(0, 256);
    problems.push_back(std::make_unique<GradientProblem>(i, shape));
    SetAny(*problems.back());
  }
  return problems;
}

class CudaBackwardGroupTest : public DeviceTest {
 protected:
  // What a call enqueues, with nothing but it in the workspace.
  absl::StatusOr<LaunchCounts> Run(DeviceRunner& device,
                                   std::vector<BackwardArgs> group,
                                   const GroupOptions& options = {}) {
    auto counts = device.BackwardEach(
        {std::move(group)}, [&](Group on_device, Workspace& workspace) {
          return cuda::EnqueueBackward(on_device, options, device.gpu(),
                                       workspace);
        });
    if (!counts.ok()) return counts.status();
    return counts->front();
  }

  // Between the first kernel and the last: Hopper's has one before it that says
  // what its tiles are.
  int MainKernels() { return device().gpu().is_hopper() ? 2 : 1; }
};

TEST_F(CudaBackwardGroupTest, UnlikeProblemsTakeFewKernelsAndOneCopyAtMost) {
  const auto problems = MixedProblems(64);
  std::vector<BackwardArgs> group;
  for (const auto& p : problems) group.push_back(p->args);
  const auto counts = Run(device(), group);
  ASSERT_TRUE(counts.ok()) << counts.status();
  std::printf("64 unlike problems: %d kernels, %d copies\n", counts->kernels,
              counts->copies);
  EXPECT_LE(counts->kernels, 3 + MainKernels());
  EXPECT_LE(counts->copies, 1);
}

TEST_F(CudaBackwardGroupTest, ASmallProblemIsFewKernelsAndNoCopy) {
  GradientProblem problem(
      1, {.q_len = 64, .kv_len = 64, .q_heads = 2, .dim = 128});
  SetAny(problem);
  auto counts = Run(device(), {problem.args});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 2 + MainKernels());
  EXPECT_EQ(counts->copies, 0);
  problem.SetOutputs({}, DType::kBF16, DType::kBF16);
  counts = Run(device(), {problem.args});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 1 + MainKernels());
}

TEST_F(CudaBackwardGroupTest, NothingToDoIsNoError) {
  const auto counts = Run(device(), {});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 0);
}

TEST_F(CudaBackwardGroupTest, MemoryDoesNotGrowWithTheScores) {
  // The first blocks of descriptors and counters.
  constexpr int64_t kOthers = 2 * (int64_t{64} << 10);
  for (int64_t len : {1024, 4096, 16384}) {
    GradientProblem problem(
        1, {.q_len = len, .kv_len = len, .q_heads = 2, .dim = 64});
    SetAny(problem);
    const int64_t promised =
        cuda::BackwardScratchBytes(problem.problem(), Algorithm::kAuto);
    const auto fresh = DeviceRunner::Create();
    ASSERT_TRUE(fresh.ok()) << fresh.status();
    const auto counts = Run(**fresh, {problem.args}, {.deterministic = true});
    ASSERT_TRUE(counts.ok()) << counts.status();
    const int64_t bytes = (*fresh)->workspace().device_bytes();
    std::printf("length %5lld: %lld bytes held, %lld promised\n",
                static_cast<long long>(len), static_cast<long long>(bytes),
                static_cast<long long>(promised));
    EXPECT_LE(bytes, promised + kOthers);
    // The sums, some words a row, what is said of each block of columns, and
    // whole lines.
    EXPECT_LE(promised, 2 * len * ((64 + 5) * 4 + 1) + 1024);
  }
}

TEST_F(CudaBackwardGroupTest, AWarmWorkspaceAllocatesNothing) {
  const auto problems = MixedProblems(64);
  std::vector<BackwardArgs> group;
  for (const auto& p : problems) group.push_back(p->args);
  ASSERT_TRUE(Run(device(), group).ok());
  const int64_t held = device().workspace().device_bytes();
  for (int run = 0; run < 3; ++run) ASSERT_TRUE(Run(device(), group).ok());
  EXPECT_EQ(device().workspace().device_bytes(), held);
}

// Problems whose scratch together is far more than a stream keeps, and which
// therefore run in several sets of launches.
TEST_F(CudaBackwardGroupTest, ManyLongProblemsTakeBoundedMemory) {
  constexpr int64_t kShared = int64_t{64} << 20;
  constexpr int64_t kOthers = int64_t{1} << 20;
  GradientProblem problem(5, {.q_len = 20000, .kv_len = 150, .q_heads = 2});
  problem.Solve();
  const int64_t one =
      cuda::BackwardScratchBytes(problem.problem(), Algorithm::kAuto);
  const int64_t count = 3 * kShared / one;
  ASSERT_GT(count, 5);
  std::vector<RandomProblem::BackwardOutputs> out(count);
  std::vector<BackwardArgs> group;
  for (auto& o : out) group.push_back(problem.Into(o));
  int64_t held = 0;
  const auto counts = device().BackwardEach(
      {group}, [&](Group on_device, Workspace& workspace) {
        auto enqueued = cuda::EnqueueBackward(
            on_device, {.deterministic = true}, device().gpu(), workspace);
        held = workspace.device_bytes();
        return enqueued;
      });
  ASSERT_TRUE(counts.ok()) << counts.status();
  std::printf("%lld long problems: %d kernels, %lld bytes held\n",
              static_cast<long long>(count), counts->front().kernels,
              static_cast<long long>(held));
  EXPECT_LE(held, std::max(kShared, one) + kOthers);
  EXPECT_TRUE(testing::CheckGradients(problem.args, out.front(),
                                      testing::Slack::kApproximations));
  for (const auto& o : out) {
    EXPECT_EQ(o.dq.bytes(), out.front().dq.bytes());
    EXPECT_EQ(o.dk[0].bytes(), out.front().dk[0].bytes());
    EXPECT_EQ(o.dv[0].bytes(), out.front().dv[0].bytes());
  }
}

TEST_F(CudaBackwardGroupTest, CancelledProblemsAreLeftOut) {
  GradientProblem problem(
      2, {.q_len = 100, .kv_len = 200, .q_heads = 2, .dim = 128});
  problem.Solve();
  CancelToken token;
  token.Cancel();
  std::vector<RandomProblem::BackwardOutputs> out(3);
  std::vector<BackwardArgs> group;
  for (auto& o : out) group.push_back(problem.Into(o));
  group[1].problem.cancel = &token;
  const auto poison = out[1].dq.bytes();
  auto counts = Run(device(), group);
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 2 + MainKernels());
  EXPECT_EQ(out[1].dq.bytes(), poison);
  for (int n : {0, 2}) {
    EXPECT_TRUE(testing::CheckGradients(group[n], out[n],
                                        testing::Slack::kApproximations));
  }
  counts = Run(device(), {group[1], group[1]});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 0);
}

// Again and again: each run leaves behind what the next one starts from.
TEST_F(CudaBackwardGroupTest, CanBeCapturedOnceWarm) {
  for (bool deterministic : {false, true}) {
    const GroupOptions options = {.deterministic = deterministic};
    GradientProblem problem(
        3, {.batch = 2, .q_len = 200, .kv_len = 330, .q_heads = 4, .dim = 128});
    problem.Solve();
    cudaGraphExec_t replay = nullptr;
    const auto enqueue =
        [&](Group group, Workspace& workspace) -> absl::StatusOr<LaunchCounts> {
      auto counts =
          cuda::EnqueueBackward(group, options, device().gpu(), workspace);
      if (!counts.ok()) return counts;
      const cudaStream_t stream = workspace.stream();
      EXPECT_EQ(
          cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          cudaSuccess);
      counts = cuda::EnqueueBackward(group, options, device().gpu(), workspace);
      cudaGraph_t graph = nullptr;
      EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
      EXPECT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
      for (int run = 0; run < 3; ++run) {
        EXPECT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
      }
      return counts;
    };
    const auto counts = device().BackwardEach({{problem.args}}, enqueue);
    ASSERT_TRUE(counts.ok()) << counts.status();
    EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
    EXPECT_TRUE(problem.IsAccurate()) << "deterministic " << deterministic;
  }
}

}  // namespace
}  // namespace attnd
