// What a group costs beside its arithmetic: launches, copies and memory.

#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"

namespace attnd {
namespace {

using testing::DenseProblem;
using testing::DenseShape;
using testing::DeviceRunner;
using testing::DeviceTest;

class CudaGroupTest : public DeviceTest {
 protected:
  // Device memory that a fresh workspace holds after the problem ran in it.
  int64_t MeasuredBytes(const DenseShape& shape, Algorithm algorithm) {
    auto fresh = DeviceRunner::Create();
    EXPECT_TRUE(fresh.ok()) << fresh.status();
    if (!fresh.ok()) return -1;
    DenseProblem problem(1, shape);
    const auto counts = (*fresh)->Forward({&problem.args, 1}, algorithm);
    EXPECT_TRUE(counts.ok()) << counts.status();
    return (*fresh)->workspace().device_bytes();
  }
};

std::vector<std::unique_ptr<DenseProblem>> MixedProblems(int count) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<std::unique_ptr<DenseProblem>> problems;
  for (int i = 0; i < count; ++i) {
    DenseShape shape{.dim = 128};
    shape.kv_len = draw(1, 512);
    shape.q_len = i % 4 == 0 ? 1 : draw(1, 512);
    shape.kv_heads = draw(1, 4);
    shape.q_heads = shape.kv_heads * draw(1, 4);
    shape.mask.causal = i % 3 == 1;
    if (i % 3 == 2) shape.mask.left = draw(0, 256);
    problems.push_back(std::make_unique<DenseProblem>(i, shape));
  }
  return problems;
}

TEST_F(CudaGroupTest, UnlikeProblemsTakeTwoKernelsAndOneCopyAtMost) {
  const auto problems = MixedProblems(64);
  std::vector<ForwardArgs> group;
  for (const auto& p : problems) group.push_back(p->args);
  const auto counts = device().Forward(group);
  ASSERT_TRUE(counts.ok()) << counts.status();
  std::printf("64 unlike problems: %d kernels, %d copies\n", counts->kernels,
              counts->copies);
  EXPECT_LE(counts->kernels, 2);
  EXPECT_LE(counts->copies, 1);
}

TEST_F(CudaGroupTest, ASmallProblemIsOneKernelAndNoCopy) {
  DenseProblem problem(1,
                       {.q_len = 64, .kv_len = 64, .q_heads = 2, .dim = 128});
  const auto counts = device().Forward({&problem.args, 1});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 1);
  EXPECT_EQ(counts->copies, 0);
}

TEST_F(CudaGroupTest, NothingToDoIsNoError) {
  const auto counts = device().Forward({});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 0);
}

DenseShape Square(int64_t len) {
  return {.q_len = len, .kv_len = len, .q_heads = 2, .dim = 64};
}

TEST_F(CudaGroupTest, MemoryDoesNotGrowWithTheScores) {
  const int64_t bytes_1k = MeasuredBytes(Square(1024), Algorithm::kAuto);
  for (int64_t len : {1024, 4096, 16384}) {
    const DenseShape shape = Square(len);
    DenseProblem problem(1, shape);
    const int64_t promised =
        cuda::ForwardScratchBytes(problem.args.problem, Algorithm::kAuto);
    const int64_t bytes = MeasuredBytes(shape, Algorithm::kAuto);
    std::printf("length %5lld: %lld bytes held, %lld promised; ",
                static_cast<long long>(len), static_cast<long long>(bytes),
                static_cast<long long>(promised));
    const bool naive =
        cuda::SupportsForward(problem.args.problem, Algorithm::kNaive).ok();
    std::printf(
        "naive %lld held, %lld promised\n",
        static_cast<long long>(naive && len <= 4096
                                   ? MeasuredBytes(shape, Algorithm::kNaive)
                                   : -1),
        static_cast<long long>(
            naive ? cuda::ForwardScratchBytes(problem.args.problem,
                                              Algorithm::kNaive)
                  : -1));
    // Linear at most: 16 times the length, 16 times the memory.
    EXPECT_LE(bytes, bytes_1k * (len / 1024));
    EXPECT_LT(bytes, len * len);
  }
}

TEST_F(CudaGroupTest, AWarmWorkspaceAllocatesNothing) {
  const auto problems = MixedProblems(64);
  std::vector<ForwardArgs> group;
  for (const auto& p : problems) group.push_back(p->args);
  ASSERT_TRUE(device().Forward(group).ok());
  const int64_t held = device().workspace().device_bytes();
  for (int run = 0; run < 3; ++run) ASSERT_TRUE(device().Forward(group).ok());
  EXPECT_EQ(device().workspace().device_bytes(), held);
}

}  // namespace
}  // namespace attnd
