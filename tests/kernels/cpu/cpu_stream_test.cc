// What a stream does beside arithmetic: memory, times, cancelling.

#include "kernels/cpu/cpu_stream.h"

#include <cstring>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/run_group.h"

namespace attnd::cpu {
namespace {

using ::testing::StartsWith;

class CpuStreamTest : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = CreateCpuBackend({.threads = 2}).value();
  std::unique_ptr<Stream> stream_ = backend_->NewStream().value();
};

TEST_F(CpuStreamTest, UploadsScatteredSpansInOrder) {
  std::vector<std::byte> whole(100'000);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = std::byte(i % 251);
  std::vector<ConstHostSpan> spans;
  for (size_t at = 0, n = 0; at < whole.size(); at += n, n = (n * 3 + 1) % 97) {
    n = std::min(n, whole.size() - at);
    spans.push_back(ConstHostSpan(whole).subspan(at, n));
    if (n == 0) n = 1, spans.back() = ConstHostSpan(whole).subspan(at, n);
  }
  std::byte* to = stream_->Allocate(whole.size()).value();
  std::memset(to, 0xFF, whole.size());
  ASSERT_TRUE(stream_->Upload(spans, to).ok());
  EXPECT_EQ(std::memcmp(to, whole.data(), whole.size()), 0);
  const PhaseTimes times = stream_->Wait().value();
  EXPECT_GT(times.upload, absl::ZeroDuration());
  EXPECT_EQ(times.compute, absl::ZeroDuration());
  EXPECT_EQ(times.download, absl::ZeroDuration());
}

TEST_F(CpuStreamTest, WaitStartsTheTimesAnew) {
  std::byte* to = stream_->Allocate(16).value();
  const std::byte from[16] = {};
  const ConstHostSpan span(from);
  ASSERT_TRUE(stream_->Upload({&span, 1}, to).ok());
  ASSERT_TRUE(stream_->Wait().ok());
  EXPECT_EQ(stream_->Wait().value().upload, absl::ZeroDuration());
}

TEST_F(CpuStreamTest, OutputsAreTheHostsOwnMemory) {
  std::byte* host = backend_->host_memory()->Allocate(1000);
  ASSERT_NE(host, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(host) % kTensorAlignment, 0);
  EXPECT_EQ(stream_->MapOutput(HostSpan(host, 1000)).value(), host);
  EXPECT_TRUE(stream_->Download(host, HostSpan(host, 1000)).ok());
  backend_->host_memory()->Free(host, 1000);
}

TEST_F(CpuStreamTest, NoMemoryIsResourceExhausted) {
  EXPECT_EQ(stream_->Allocate(int64_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(CpuStreamTest, SaysWhatItRuns) {
  EXPECT_EQ(backend_->device().kind, "cpu");
  EXPECT_FALSE(backend_->device().name.empty());
  EXPECT_GT(backend_->device().memory_bytes, 0);
  const KernelInfo kernel = backend_->Kernel(Op::kForward, Problem(), {});
  EXPECT_EQ(kernel.algorithm, Algorithm::kFlashAttention2);
  EXPECT_THAT(kernel.name, StartsWith("cpu/flash/"));
  const KernelInfo naive =
      backend_->Kernel(Op::kForward, Problem(), {Algorithm::kNaive});
  EXPECT_EQ(naive.algorithm, Algorithm::kNaive);
  EXPECT_EQ(naive.name, "reference/naive");
}

TEST(CpuOptionsTest, RefusesImpossibleValues) {
  EXPECT_EQ(CreateCpuBackend({.threads = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateCpuBackend({.retained_bytes = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateCpuBackend({.retained_workspace_bytes = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// A problem as long as one wishes over almost no memory: every token of K, V
// and Q is the same one. Only LSE is written.
struct EndlessProblem {
  explicit EndlessProblem(int64_t len) : lse(len) {
    segment.k = segment.v = {row, DType::kF32, 0, 0, 0};
    segment.len = len;
    args.problem.batch = 1;
    args.problem.q_len = len;
    args.problem.q_heads = args.problem.kv_heads = 1;
    args.problem.head_dim = args.problem.value_dim = 64;
    args.problem.q = {row, DType::kF32, 0, 0, 0};
    args.problem.kv = {&segment, 1};
    args.problem.cancel = &cancel;
    args.lse = {lse.data(), 0, 0};
    backward.problem = args.problem;
    backward.d_o = args.problem.q;
    backward.lse = backward.delta = {lse.data(), 0, 0};
  }

  float row[64] = {};
  std::vector<float> lse, gradient;
  KvSegment segment;
  CancelToken cancel;
  ForwardArgs args;
  BackwardArgs backward;
};

TEST_F(CpuStreamTest, ScratchGrowsWithTheLengthAlone) {
  const EndlessProblem problem(1 << 20);
  const Problem& p = problem.args.problem;
  const int64_t row_bytes = p.head_dim * int64_t{sizeof(float)};
  for (Op op : {Op::kForward, Op::kBackward}) {
    // K and V packed; Q and dO, and four sums of dQ.
    const int64_t rows = (op == Op::kForward ? 2 : 2 + 4) * p.q_len;
    EXPECT_LT(backend_->ScratchBytes(op, p, {}),
              (8 << 20) + rows * row_bytes * 5 / 4);
    EXPECT_GT(backend_->ScratchBytes(op, p, {Algorithm::kNaive}),
              int64_t{4} << 40);
  }
}

// Each would run for hours: that it ends shows that it was cancelled.
constexpr int64_t kHours = 4 << 20;

TEST_F(CpuStreamTest, CancellingEndsForward) {
  EndlessProblem problem(kHours);
  std::latch started(1);
  std::thread lane([&] {
    started.count_down();
    EXPECT_TRUE(testing::RunForward(*stream_, {&problem.args, 1}).ok());
  });
  started.wait();
  problem.cancel.Cancel();
  lane.join();
}

TEST_F(CpuStreamTest, CancellingEndsBackward) {
  EndlessProblem problem(kHours);
  problem.gradient.resize(64);
  const TensorView gradient{problem.gradient.data(), DType::kF32, 0, 0, 0};
  problem.segment.dk = problem.segment.dv = gradient;
  std::latch started(1);
  std::thread lane([&] {
    started.count_down();
    EXPECT_TRUE(testing::RunBackward(*stream_, {&problem.backward, 1}).ok());
  });
  started.wait();
  problem.cancel.Cancel();
  lane.join();
}

// One task that alone would take hours: it ends only if the token is polled
// inside.
TEST_F(CpuStreamTest, CancellingEndsATaskOverManyTiles) {
  EndlessProblem forward(64), backward(64);
  forward.segment.len = backward.segment.len = int64_t{1} << 40;
  backward.gradient.resize(64 * 64);
  backward.backward.dq = {backward.gradient.data(), DType::kF32, 0, 64, 0};

  const auto cancel_while = [&](EndlessProblem& problem, auto run) {
    std::thread lane([&] { EXPECT_TRUE(run().ok()); });
    // Meanwhile this thread does this, short enough for it to help the pool,
    // whose threads are taken, and long enough for the lane's to have begun.
    EndlessProblem other(1900);
    const auto stream = backend_->NewStream().value();
    EXPECT_TRUE(testing::RunForward(*stream, {&other.args, 1}).ok());
    problem.cancel.Cancel();
    lane.join();
  };
  cancel_while(forward, [&] {
    return testing::RunForward(*stream_, {&forward.args, 1});
  });
  cancel_while(backward, [&] {
    return testing::RunBackward(*stream_, {&backward.backward, 1});
  });
}

TEST_F(CpuStreamTest, CancellingEndsTheReferenceAlgorithms) {
  for (Algorithm algorithm :
       {Algorithm::kOnlineSoftmax, Algorithm::kFlashAttention1,
        Algorithm::kFlashAttention2}) {
    EndlessProblem problem(100'000);
    std::latch started(1);
    std::thread lane([&] {
      started.count_down();
      EXPECT_TRUE(
          testing::RunForward(*stream_, {&problem.args, 1}, {algorithm}).ok());
    });
    started.wait();
    problem.cancel.Cancel();
    lane.join();
  }
}

TEST_F(CpuStreamTest, ACancelledProblemLeavesItsGroupAlone) {
  EndlessProblem cancelled(kHours), other(2000);
  cancelled.cancel.Cancel();
  const ForwardArgs group[] = {cancelled.args, other.args};
  ASSERT_TRUE(testing::RunForward(*stream_, group).ok());
  // All scores are 0.
  for (float lse : other.lse) ASSERT_NEAR(lse, std::log(2000.0), 1e-5);
}

TEST_F(CpuStreamTest, AHugeBatchOfNothingCostsNothing) {
  // Sized so that a few cycles for each sequence would be minutes.
  ForwardArgs args;
  args.problem.batch = int64_t{1} << 31;
  args.problem.q_heads = args.problem.kv_heads = 1;
  args.problem.head_dim = args.problem.value_dim = 64;
  BackwardArgs backward;
  backward.problem = args.problem;
  for (Algorithm algorithm : {Algorithm::kAuto, Algorithm::kNaive}) {
    EXPECT_TRUE(testing::RunForward(*stream_, {&args, 1}, {algorithm}).ok());
    EXPECT_TRUE(
        testing::RunBackward(*stream_, {&backward, 1}, {algorithm}).ok());
  }
}

TEST(CpuStreamBusyTest, SmallGroupsNeedNoThreadOfThePool) {
  CpuCompute compute(1);
  CpuStream stream(compute, 0, 0);
  ASSERT_TRUE(stream.ok());
  std::latch busy(1), small_done(1);
  std::thread caller([&] {
    // Holds the only thread until all the small groups have ended.
    compute.pool.ParallelFor({1}, false, [&](int64_t, int) {
      busy.count_down();
      small_done.wait();
    });
  });
  busy.wait();
  for (Algorithm algorithm :
       {Algorithm::kAuto, Algorithm::kNaive, Algorithm::kOnlineSoftmax,
        Algorithm::kFlashAttention1, Algorithm::kFlashAttention2}) {
    for (int64_t len : {1, 5, 150}) {  // run here, and with the caller's help
      EndlessProblem problem(len);
      problem.gradient.resize(64);
      problem.segment.dk = {problem.gradient.data(), DType::kF32, 0, 0, 0};
      EXPECT_TRUE(
          testing::RunForward(stream, {&problem.args, 1}, {algorithm}).ok());
      for (float lse : problem.lse) {
        EXPECT_NEAR(lse, std::log(static_cast<double>(len)), 1e-5);
      }
      EXPECT_TRUE(
          testing::RunBackward(stream, {&problem.backward, 1}, {algorithm})
              .ok());
    }
  }
  small_done.count_down();
  caller.join();
}

TEST_F(CpuStreamTest, SeveralStreamsComputeAtOnce) {
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < 3; ++lane) {
    lanes.emplace_back([&] {
      std::unique_ptr<Stream> stream = backend_->NewStream().value();
      for (int64_t len : {1, 700, 3, 300}) {
        EndlessProblem problem(len);
        ASSERT_TRUE(testing::RunForward(*stream, {&problem.args, 1}).ok());
        for (float lse : problem.lse) {
          ASSERT_NEAR(lse, std::log(static_cast<double>(len)), 1e-5);
        }
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
}

}  // namespace
}  // namespace attnd::cpu
