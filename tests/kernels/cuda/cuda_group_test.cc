// What a group costs beside its arithmetic: launches, copies and memory.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/sm80/config.h"
#include "tests/kernels/accuracy.h"
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

DenseShape Decode(int64_t kv_len, int64_t dim) {
  return {.kv_len = kv_len, .q_heads = 4, .dim = dim};
}

// What parts of the columns leave behind is small beside their keys.
TEST_F(CudaGroupTest, DecodeTakesASmallPartOfItsKeysMemory) {
  for (int64_t kv_len : {16384, 100000}) {
    const DenseShape shape = Decode(kv_len, 128);
    const int64_t key_bytes = 2 * kv_len * shape.dim * SizeOf(shape.dtype);
    const int64_t bytes = MeasuredBytes(shape, Algorithm::kAuto);
    std::printf("decode of %lld keys: %lld bytes held, K and V %lld\n",
                static_cast<long long>(kv_len), static_cast<long long>(bytes),
                static_cast<long long>(key_bytes));
    EXPECT_GE(bytes, 0);
    EXPECT_LE(bytes, key_bytes / 16);
  }
}

TEST_F(CudaGroupTest, DecodeMemoryStopsGrowingAt64Parts) {
  constexpr int64_t kColumns =
      cuda::sm80::kMostParts * cuda::sm80::kPartColumns;
  const int64_t most = MeasuredBytes(Decode(kColumns, 16), Algorithm::kAuto);
  for (int64_t kv_len : {kColumns + 1, kColumns * 3 / 2, kColumns * 2}) {
    EXPECT_LE(MeasuredBytes(Decode(kv_len, 16), Algorithm::kAuto), most);
  }
  DenseProblem shortest(1, Decode(1, 16));
  Problem endless = shortest.args.problem;
  KvSegment segment = endless.kv.front();
  endless.kv = {&segment, 1};
  segment.len = kColumns;
  const int64_t promised = cuda::ForwardScratchBytes(endless, Algorithm::kAuto);
  segment.len = int64_t{1} << 40;
  EXPECT_EQ(cuda::ForwardScratchBytes(endless, Algorithm::kAuto), promised);
}

// Row i of a problem of one sequence that no mask limits, as a problem to be
// decoded. `args` are its own, or the same in device memory.
ForwardArgs OnlyRow(ForwardArgs args, int64_t i) {
  const auto move = [&](auto& view) {
    using Byte = std::conditional_t<
        std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
        const std::byte, std::byte>;
    view.data = static_cast<Byte*>(view.data) +
                i * view.token_stride * SizeOf(view.dtype);
  };
  args.problem.q_len = 1;
  move(args.problem.q);
  move(args.o);
  args.lse.data += i;
  return args;
}

::testing::AssertionResult RowIsAccurate(const DenseProblem& of, int64_t i) {
  std::vector<double> o, lse;
  for (int64_t h = 0; h < of.o.heads(); ++h) {
    lse.push_back(of.lse.Get(0, h, i));
    for (int64_t d = 0; d < of.o.dim(); ++d) o.push_back(of.o.Get(0, i, h, d));
  }
  return testing::CheckResults(OnlyRow(of.args, i).problem, of.o.dtype(), o,
                               lse, testing::Slack::kApproximations);
}

// Problems of one query each over a few lots of keys, whose parts' results
// would take far more than a stream keeps.
TEST_F(CudaGroupTest, ThousandsOfDecodesTakeBoundedMemory) {
  constexpr int64_t kSources = 8, kRows = 625, kProblems = kSources * kRows;
  constexpr int64_t kShared = int64_t{64} << 20;
  constexpr int64_t kDescriptor = 1024;  // of a problem; at most
  std::vector<std::unique_ptr<DenseProblem>> sources;
  std::vector<ForwardArgs> group;
  for (int64_t i = 0; i < kSources; ++i) {
    sources.push_back(
        std::make_unique<DenseProblem>(i, DenseShape{.q_len = kRows,
                                                     .kv_len = 5000,
                                                     .q_heads = 64,
                                                     .kv_heads = 4,
                                                     .dim = 32}));
    group.push_back(sources.back()->args);
  }
  int64_t held = 0;
  const auto counts = device().ForwardEach(
      {group},
      [&](absl::Span<const ForwardArgs> on_device, cuda::Workspace& workspace) {
        std::vector<ForwardArgs> decodes;
        for (int64_t i = 0; i < kProblems; ++i) {
          decodes.push_back(OnlyRow(on_device[i % kSources], i / kSources));
        }
        auto enqueued = cuda::EnqueueForward(decodes, Algorithm::kAuto,
                                             device().gpu(), workspace);
        held = workspace.device_bytes();
        return enqueued;
      });
  ASSERT_TRUE(counts.ok()) << counts.status();
  const int64_t one =
      cuda::ForwardScratchBytes(OnlyRow(group[0], 0).problem, Algorithm::kAuto);
  std::printf("%lld decodes: %d kernels, %d copies, %lld bytes held\n",
              static_cast<long long>(kProblems), counts->front().kernels,
              counts->front().copies, static_cast<long long>(held));
  EXPECT_LE(held, kShared + one + kProblems * kDescriptor);
  EXPECT_LE(counts->front().kernels, 64);
  for (const auto& source : sources) {
    for (int64_t row : {int64_t{0}, kRows / 2, kRows - 1}) {
      EXPECT_TRUE(RowIsAccurate(*source, row)) << "row " << row;
    }
  }
}

}  // namespace
}  // namespace attnd
