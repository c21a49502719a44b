// Deterministic gradients have the same bits every time, whatever else the
// device does.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/gradient_problem.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using testing::DenseShape;
using testing::DeviceRunner;
using testing::DeviceTest;
using testing::GradientProblem;
using testing::RandomProblem;

constexpr GroupOptions kDeterministic = {.deterministic = true};

// The memory of every output, in the output's own type.
using Bits = std::vector<std::vector<uint8_t>>;

// Blocks of columns that take turns at rows, few and many of them, whose scores
// are products alone, or more than that.
struct Repeated {
  DenseShape shape;
  bool softcap = false;  // which Hopper's kernels leave to others
};

std::vector<Repeated> RepeatedProblems() {
  std::vector<Repeated> all;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t dim : {33, 64, 96, 128, 192, 256}) {
      for (bool softcap : {false, true}) {
        if (dtype == DType::kF32 && softcap) continue;
        if (dim == 33 && softcap) continue;
        all.push_back({{.dtype = dtype,
                        .batch = 2,
                        .q_len = 300,
                        .kv_len = 500,
                        .q_heads = 4,
                        .kv_heads = 2,
                        .dim = dim,
                        .mask = {.causal = true}},
                       softcap});
      }
    }
    // One head: all blocks add to the same rows.
    all.push_back({{.dtype = dtype,
                    .q_len = 190,
                    .kv_len = 2500,
                    .q_heads = 1,
                    .kv_heads = 1,
                    .dim = 64}});
    all.push_back({{.dtype = dtype,
                    .q_len = 1000,
                    .kv_len = 700,
                    .q_heads = 3,
                    .kv_heads = 1,
                    .dim = 128,
                    .mask = {.left = 150, .right = 40}}});
  }
  return all;
}

std::string RepeatedName(const ::testing::TestParamInfo<Repeated>& info) {
  const auto& [shape, softcap] = info.param;
  return absl::StrCat(shape.dtype == DType::kF32   ? "F32"
                      : shape.dtype == DType::kF16 ? "F16"
                                                   : "Bf16",
                      "Rows", shape.q_len, "Columns", shape.kv_len, "Dim",
                      shape.dim, softcap ? "Softcap" : "");
}

class CudaBackwardRepeatTest : public DeviceTest,
                               public ::testing::WithParamInterface<Repeated> {
 protected:
  static std::unique_ptr<GradientProblem> MakeProblem() {
    auto problem = std::make_unique<GradientProblem>(7, GetParam().shape);
    if (GetParam().softcap) problem->problem().softcap = 2.0f;
    problem->Solve();
    return problem;
  }

  Bits Run(GradientProblem& problem) {
    problem.PoisonOutputs();
    const auto counts = device().Backward({&problem.args, 1}, kDeterministic);
    EXPECT_TRUE(counts.ok()) << counts.status();
    return problem.Bits();
  }
};

TEST_P(CudaBackwardRepeatTest, TwoHundredRunsGiveTheSameBits) {
  const auto problem = MakeProblem();
  const Bits first = Run(*problem);
  EXPECT_TRUE(problem->IsAccurate());
  for (int run = 1; run < 200; ++run) {
    ASSERT_TRUE(Run(*problem) == first) << "run " << run;
  }
}

// Keeps the device busy through a stream of its own, as long as it lives.
class Load {
 public:
  // Once it is.
  Load()
      : problem_(9, {.batch = 4,
                     .q_len = 400,
                     .kv_len = 600,
                     .q_heads = 8,
                     .kv_heads = 4}) {
    // Any numbers will do.
    problem_.args.lse = problem_.args.delta =
        std::as_const(problem_.d_lse).view();
    problem_.args.o = {};
    thread_ = std::thread([this] {
      Run();
      rounds_ = kEnded;
      rounds_.notify_all();
    });
    rounds_.wait(0);
  }
  ~Load() {
    stop_ = true;
    thread_.join();
  }

 private:
  // Many launches for each time that the host has something to do.
  static constexpr int kLaunches = 100, kEnded = -1;

  static absl::StatusOr<cuda::LaunchCounts> Enqueue(
      absl::Span<const BackwardArgs> group, const cuda::Gpu& gpu,
      cuda::Workspace& workspace) {
    for (int i = 1; i < kLaunches; ++i) {
      auto counts = cuda::EnqueueBackward(group, {.deterministic = i % 2 == 1},
                                          gpu, workspace);
      if (!counts.ok()) return counts;
    }
    return cuda::EnqueueBackward(group, {}, gpu, workspace);
  }

  void Run() {
    const auto device = DeviceRunner::Create();
    ASSERT_TRUE(device.ok()) << device.status();
    while (!stop_) {
      const auto counts = (*device)->BackwardEach(
          {{problem_.args}}, [&](absl::Span<const BackwardArgs> group,
                                 cuda::Workspace& workspace) {
            return Enqueue(group, (*device)->gpu(), workspace);
          });
      ASSERT_TRUE(counts.ok()) << counts.status();
      ++rounds_;
      rounds_.notify_all();
    }
  }

  GradientProblem problem_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> rounds_ = 0;
  std::thread thread_;
};

TEST_P(CudaBackwardRepeatTest, SoDoRunsBesideOthers) {
  const auto problem = MakeProblem();
  const Bits first = Run(*problem);
  const Load load;
  for (int run = 1; run < 50; ++run) {
    ASSERT_TRUE(Run(*problem) == first) << "run " << run;
  }
}

// More tiles than a GPU has multiprocessors, of many heads: some blocks of
// threads take several, and many take turns at once.
TEST_P(CudaBackwardRepeatTest, SoDoManyCopiesInOneGroup) {
  constexpr int kCopies = 40;
  const auto problem = MakeProblem();
  const Bits expected = Run(*problem);
  std::vector<RandomProblem::BackwardOutputs> copies(kCopies);
  std::vector<BackwardArgs> group;
  for (auto& copy : copies) group.push_back(problem->Into(copy));
  const auto counts = device().Backward(group, kDeterministic);
  ASSERT_TRUE(counts.ok()) << counts.status();
  for (const auto& copy : copies) {
    const Bits bits = {copy.dq.bytes(), copy.dk[0].bytes(), copy.dv[0].bytes()};
    ASSERT_TRUE(bits == expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaBackwardRepeatTest,
                         ::testing::ValuesIn(RepeatedProblems()), RepeatedName);

}  // namespace
}  // namespace attnd
