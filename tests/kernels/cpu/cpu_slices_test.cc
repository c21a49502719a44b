// A run in slices gives the bits of a run without a pause.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/aligned_memory.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/job.h"
#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/run_group.h"
#include "tests/kernels/sequence_alone.h"
#include "tests/thinned.h"

namespace attnd::cpu {
namespace {

using testing::InvarianceShape;
using testing::InvarianceShapes;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::RunBackward;
using testing::RunForward;
using testing::ShapeName;

constexpr Algorithm kReference[] = {
    Algorithm::kNaive, Algorithm::kOnlineSoftmax, Algorithm::kFlashAttention1,
    Algorithm::kFlashAttention2};

// The memory of every output, in the output's own type.
using Bits = std::vector<std::vector<uint8_t>>;

Bits BitsOf(const RandomProblem::ForwardOutputs& out) {
  return {out.o.bytes(), out.lse.bytes()};
}

Bits BitsOf(const RandomProblem::BackwardOutputs& out) {
  Bits bits = {out.dq.bytes()};
  for (const OwnedTensor& t : out.dk) bits.push_back(t.bytes());
  for (const OwnedTensor& t : out.dv) bits.push_back(t.bytes());
  return bits;
}

// Runs jobs with a pause after every task, in memory of their own.
class Slicer {
 public:
  void Run(FlashJob job) {
    job.Cut(compute_.pool.threads());
    if (job.workspace_floats() > 0) {
      job.Place(reinterpret_cast<float*>(workspace_.Allocate(
          job.workspace_floats() * static_cast<int64_t>(sizeof(float)))));
    }
    RunTasks(job);
    workspace_.Reset();
  }
  void Run(ReferenceJob job) { RunTasks(job); }

  // Of the last job: calls that it took, tasks that stopped in the middle.
  int64_t calls() const { return calls_; }
  int64_t begun() const { return begun_; }

 private:
  void RunTasks(Job& job) {
    const auto pause = [] { return true; };
    ThreadPool::Tasks tasks = {.turns = job.turns()};
    const auto run = [&](int64_t task, int worker) {
      return job.Run(task, compute_.scratch[worker], pause);
    };
    calls_ = 1;
    begun_ = 0;
    while (!compute_.pool.RunUntil(pause, /*help=*/false, run, tasks)) {
      ++calls_;
      begun_ += static_cast<int64_t>(tasks.begun.size());
      for (int64_t task : tasks.begun) {
        // A slab that no row sees costs nothing.
        if (job.TaskFlops(task) == 0) continue;
        ASSERT_GT(job.FlopsLeft(task), 0);
        ASSERT_LT(job.FlopsLeft(task), job.TaskFlops(task));
      }
    }
  }

  CpuCompute compute_{3};
  Arena workspace_{0};
  int64_t calls_ = 0, begun_ = 0;
};

class CpuSlicesTest : public ::testing::TestWithParam<InvarianceShape> {
 protected:
  // Several blocks, parts and slabs.
  static ProblemOptions Options() {
    ProblemOptions options;
    options.dtypes = {GetParam().dtype};
    options.head_dim = GetParam().head_dim;
    options.value_dim = GetParam().value_dim;
    options.max_q_len = options.max_kv_len = 400;
    options.max_segments = options.max_group = 2;
    return options;
  }

  std::unique_ptr<Backend> backend_ = CreateCpuBackend({.threads = 2}).value();
  std::unique_ptr<Stream> stream_ = backend_->NewStream().value();
  Slicer slicer_;
  ThreadPool pool_{1};
};

TEST_P(CpuSlicesTest, TheTiledKernelsGiveTheSameBits) {
  for (uint32_t seed = 0; seed < 12; seed += testing::kProblemStep) {
    const RandomProblem problem(seed, Options());
    auto whole = problem.MakeForwardOutputs(),
         sliced = problem.MakeForwardOutputs();
    const ForwardArgs args = problem.Forward(whole),
                      again = problem.Forward(sliced);
    ASSERT_TRUE(RunForward(*stream_, {&args, 1}).ok());
    slicer_.Run(FlashJob(absl::MakeConstSpan(&again, 1), pool_));
    ASSERT_TRUE(BitsOf(sliced) == BitsOf(whole)) << problem.Describe();
  }
}

TEST_P(CpuSlicesTest, TheTiledKernelsGiveTheSameGradients) {
  for (uint32_t seed = 0; seed < 12; seed += testing::kProblemStep) {
    const RandomProblem problem(seed, Options());
    auto whole = problem.MakeBackwardOutputs(),
         sliced = problem.MakeBackwardOutputs();
    const BackwardArgs args = problem.Backward(whole),
                       again = problem.Backward(sliced);
    ASSERT_TRUE(RunBackward(*stream_, {&args, 1}).ok());
    slicer_.Run(FlashJob(absl::MakeConstSpan(&again, 1), pool_));
    ASSERT_TRUE(BitsOf(sliced) == BitsOf(whole)) << problem.Describe();
  }
}

// Slabs of several blocks stop between two of them.
TEST_P(CpuSlicesTest, ASlabThatStopsInTheMiddleGivesTheSameGradients) {
  ProblemOptions options = Options();
  options.max_batch = options.max_segments = options.max_kv_heads = 1;
  options.masks = options.empty_sizes = options.lens = options.bias = false;
  options.max_q_len = 100;
  options.max_kv_len = 20'000;
  int stopped = 0;
  for (uint32_t seed = 0; stopped == 0; ++seed) {
    const RandomProblem problem(seed, options);
    // 32 slabs of a block each, at most.
    if (PaddedKvLen(problem.problem()) < 32 * 192) continue;
    auto whole = problem.MakeBackwardOutputs(),
         sliced = problem.MakeBackwardOutputs();
    const BackwardArgs args = problem.Backward(whole),
                       again = problem.Backward(sliced);
    ASSERT_TRUE(RunBackward(*stream_, {&args, 1}).ok());
    slicer_.Run(FlashJob(absl::MakeConstSpan(&again, 1), pool_));
    ASSERT_TRUE(BitsOf(sliced) == BitsOf(whole)) << problem.Describe();
    if (slicer_.begun() > 0) ++stopped;
  }
}

TEST_P(CpuSlicesTest, TheReferenceAlgorithmsGiveTheSameBits) {
  ProblemOptions options = Options();
  options.max_q_len = options.max_kv_len = 60;
  for (const Algorithm algorithm : kReference) {
    const RandomProblem problem(7, options);
    auto o = problem.MakeForwardOutputs(), o2 = problem.MakeForwardOutputs();
    const ForwardArgs forward = problem.Forward(o), again = problem.Forward(o2);
    ASSERT_TRUE(RunForward(*stream_, {&forward, 1}, {algorithm}).ok());
    slicer_.Run(ReferenceJob(absl::MakeConstSpan(&again, 1), algorithm));
    ASSERT_TRUE(BitsOf(o2) == BitsOf(o)) << problem.Describe();
    auto d = problem.MakeBackwardOutputs(), d2 = problem.MakeBackwardOutputs();
    const BackwardArgs backward = problem.Backward(d),
                       twice = problem.Backward(d2);
    ASSERT_TRUE(RunBackward(*stream_, {&backward, 1}, {algorithm}).ok());
    slicer_.Run(ReferenceJob(absl::MakeConstSpan(&twice, 1), algorithm));
    ASSERT_TRUE(BitsOf(d2) == BitsOf(d)) << problem.Describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, CpuSlicesTest,
                         ::testing::ValuesIn(InvarianceShapes()), ShapeName);

// May be large enough to be left for Proceed.
ProblemOptions Large() {
  ProblemOptions options;
  options.dtypes = {DType::kF32};
  options.head_dim = options.value_dim = 64;
  options.max_batch = options.max_segments = options.max_kv_heads = 1;
  options.max_group = 1;
  options.empty_sizes = options.lens = options.masks = options.bias = false;
  options.max_q_len = options.max_kv_len = 4000;
  return options;
}

// The first problem drawn that takes so many FLOPs; lengths are mostly short.
std::unique_ptr<RandomProblem> DrawLarge(double flops) {
  for (uint32_t seed = 0;; ++seed) {
    auto problem = std::make_unique<RandomProblem>(seed, Large());
    const Problem& p = problem->problem();
    if (256.0 * static_cast<double>(p.q_len * PaddedKvLen(p)) > flops) {
      return problem;
    }
  }
}

class CpuProceedTest : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = CreateCpuBackend({.threads = 2}).value();
  std::unique_ptr<Stream> stream_ = backend_->NewStream().value();
  std::unique_ptr<Stream> other_ = backend_->NewStream().value();
};

TEST_F(CpuProceedTest, APausedRunGoesOnWhereItStopped) {
  const auto problem = DrawLarge(1.5e9);
  for (const bool deterministic : {false, true}) {
    auto whole = problem->MakeBackwardOutputs(),
         sliced = problem->MakeBackwardOutputs();
    const BackwardArgs args = problem->Backward(whole),
                       again = problem->Backward(sliced);
    ASSERT_TRUE(
        RunBackward(*stream_, {&args, 1}, {.deterministic = true}).ok());
    ASSERT_TRUE(
        stream_->Backward({&again, 1}, {.deterministic = deterministic}).ok());
    double share = 0;
    int slices = 0;
    while (share < 1) {
      const auto next = stream_->Proceed([] { return true; });
      ASSERT_TRUE(next.ok());
      ASSERT_GE(*next, share);
      ASSERT_LE(*next, 1);
      share = *next;
      ++slices;
      // Another stream's work in between changes nothing.
      auto between = problem->MakeForwardOutputs();
      const ForwardArgs forward = problem->Forward(between);
      if (slices == 2) {
        ASSERT_TRUE(RunForward(*other_, {&forward, 1}).ok());
      }
    }
    EXPECT_GT(slices, 3);
    EXPECT_EQ(stream_->Proceed([] { return true; }).value(), 1);
    EXPECT_TRUE(BitsOf(sliced) == BitsOf(whole));
    EXPECT_GT(stream_->Wait().value().compute, absl::ZeroDuration());
    stream_->Reset();
  }
}

TEST_F(CpuProceedTest, WhatIsShortIsOverBeforeProceed) {
  ProblemOptions options = Large();
  options.max_q_len = options.max_kv_len = 300;
  const RandomProblem problem(3, options);
  auto out = problem.MakeForwardOutputs();
  const ForwardArgs args = problem.Forward(out);
  ASSERT_TRUE(stream_->Forward({&args, 1}, {}).ok());
  const auto never = [] {
    ADD_FAILURE() << "asks whether to pause";
    return true;
  };
  EXPECT_EQ(stream_->Proceed(never).value(), 1);
}

TEST_F(CpuProceedTest, ResetForgetsAPausedRun) {
  const auto problem = DrawLarge(1.5e9);
  auto lost = problem->MakeForwardOutputs();
  const ForwardArgs args = problem->Forward(lost);
  ASSERT_TRUE(stream_->Forward({&args, 1}, {}).ok());
  ASSERT_LT(stream_->Proceed([] { return true; }).value(), 1);
  ASSERT_TRUE(stream_->Wait().ok());
  stream_->Reset();
  EXPECT_EQ(stream_->Proceed([] { return true; }).value(), 1);
}

TEST_F(CpuProceedTest, ACancelledRunIsSoonOver) {
  // Hours of work, each task of it many tiles.
  constexpr int64_t kRows = int64_t{1} << 22;
  float row[64] = {};
  std::vector<float> lse(kRows);
  KvSegment segment;
  segment.k = segment.v = {row, DType::kF32, 0, 0, 0};
  segment.len = kRows;
  CancelToken cancel;
  ForwardArgs args;
  Problem& p = args.problem;
  p.batch = p.q_heads = p.kv_heads = 1;
  p.q_len = kRows;
  p.head_dim = p.value_dim = 64;
  p.q = {row, DType::kF32, 0, 0, 0};
  p.kv = {&segment, 1};
  p.cancel = &cancel;
  args.lse = {lse.data(), 0, 0};
  ASSERT_TRUE(stream_->Forward({&args, 1}, {}).ok());
  cancel.Cancel();
  EXPECT_EQ(stream_->Proceed([] { return false; }).value(), 1);
}

}  // namespace
}  // namespace attnd::cpu
