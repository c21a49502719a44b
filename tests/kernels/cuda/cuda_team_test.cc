// Several GPUs as a team: forward has one GPU's bits by the plans that promise
// them; by all plans both directions keep the contract and give the same bits
// again.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/plan/plan.h"
#include "kernels/team/calibration.h"
#include "kernels/team/team.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/team/breakable_team.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::BackwardBits;
using testing::Bits;
using testing::ForwardBits;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::TeamOf;

constexpr uint32_t kBitProblems = 550, kProblems = 120, kFaultRuns = 220;

// Long enough for several tiles, and for the kernels of long sequences.
ProblemOptions Lengths(bool backward) {
  ProblemOptions options = testing::ServedOptions();
  options.max_q_len = 1300;
  options.max_kv_len = 1600;
  options.max_batch = 2;
  options.max_dim = 128;
  // A team's members have contiguous tensors: where one GPU's are not aligned
  // it takes other kernels.
  options.gap_step = 8;
  options.backward = backward;
  return options;
}

class CudaTeamTest : public ::testing::TestWithParam<PlanKind> {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() < 2) GTEST_SKIP() << "fewer than two GPUs are here";
    team_ = std::make_unique<TeamOf>(CreateCudaBackends({}).value());
  }
  testing::Device& team() { return *team_->team; }
  static GroupOptions Options() {
    return {.deterministic = true, .plan = GetParam()};
  }

  std::unique_ptr<TeamOf> team_;
};

TEST_P(CudaTeamTest, ForwardHasOneGpusBits) {
  if (!plan::HasOneDevicesBits(GetParam())) {
    GTEST_SKIP() << "this plan merges what it finds, and promises no bits";
  }
  auto runner = testing::DeviceRunner::Create();
  ASSERT_TRUE(runner.ok());
  for (uint32_t seed = 0; seed < kBitProblems; ++seed) {
    const RandomProblem problem(seed, Lengths(false));
    RandomProblem::ForwardOutputs out = problem.MakeForwardOutputs();
    const ForwardArgs args = problem.Forward(out);
    // The team has left another device current.
    ASSERT_TRUE(cuda::UseDevice(0).ok());
    ASSERT_TRUE((*runner)->Forward({&args, 1}).ok());
    ASSERT_EQ(ForwardBits(team(), problem, Options()),
              (Bits{out.o.bytes(), out.lse.bytes()}))
        << problem.Describe();
  }
}

TEST_P(CudaTeamTest, ForwardKeepsTheContract) {
  for (uint32_t seed = 0; seed < kProblems; ++seed) {
    ProblemOptions options = testing::ServedOptions();
    if (seed % 4 == 0) options.max_q_len = options.max_kv_len = 900;
    if (seed % 4 == 1) {  // few rows over many columns
      options.max_q_len = 16;
      options.max_kv_len = 3000;
    }
    const RandomProblem problem(seed, options);
    ASSERT_TRUE(CheckForward(
        problem,
        [&](const ForwardArgs& args) {
          return team().Forward(args, Options());
        },
        testing::Slack::kApproximations))
        << problem.Describe();
  }
}

TEST_P(CudaTeamTest, BackwardKeepsTheContract) {
  for (uint32_t seed = 0; seed < kProblems; ++seed) {
    ProblemOptions options = testing::ServedOptions();
    if (seed % 4 == 0) options.max_q_len = options.max_kv_len = 900;
    const RandomProblem problem(seed, options);
    ASSERT_TRUE(CheckBackward(
        problem,
        [&](const BackwardArgs& args) {
          return team().Backward(args, Options());
        },
        testing::Slack::kApproximations))
        << problem.Describe();
  }
}

TEST_P(CudaTeamTest, ForwardGivesTheSameBitsAgain) {
  for (uint32_t seed = 0; seed < kProblems; ++seed) {
    const RandomProblem problem(seed, Lengths(false));
    ASSERT_EQ(ForwardBits(team(), problem, Options()),
              ForwardBits(team(), problem, Options()))
        << problem.Describe();
  }
}

TEST_P(CudaTeamTest, BackwardGivesTheSameBitsAgain) {
  for (uint32_t seed = 0; seed < kProblems / 4; ++seed) {
    const RandomProblem problem(seed, Lengths(true));
    ASSERT_EQ(BackwardBits(team(), problem, Options()),
              BackwardBits(team(), problem, Options()))
        << problem.Describe();
  }
}

TEST_P(CudaTeamTest, NamesTheGpus) {
  const RandomProblem problem(1, Lengths(false));
  ForwardBits(team(), problem, Options());
  ASSERT_EQ(team().report.devices.size(), CudaDeviceCount());
  EXPECT_EQ(team().report.devices[1].name, "cuda:1");
  EXPECT_EQ(team().report.kind, GetParam());
}

// Within what may be told apart from a mistake: half of what was expected, or
// twice as much.
TEST(CudaCalibrationTest, FindsAboutWhatWasExpected) {
  if (CudaDeviceCount() < 2) GTEST_SKIP() << "fewer than two GPUs are here";
  const auto gpus = CreateCudaBackends({}).value();
  std::vector<Backend*> members;
  members.reserve(gpus.size());
  for (const auto& gpu : gpus) members.push_back(gpu.get());
  const DeviceRates expected = members.front()->Rates();
  const DeviceRates rates = Calibrate(members);
  const auto is_near = [](double found, double nominal) {
    return found >= nominal / 2 && found <= nominal * 2;
  };
  EXPECT_TRUE(is_near(rates.forward.flops, expected.forward.flops));
  EXPECT_TRUE(is_near(rates.backward.flops, expected.backward.flops));
  EXPECT_TRUE(is_near(rates.upload.bytes, expected.upload.bytes));
  EXPECT_TRUE(is_near(rates.pull.bytes, expected.pull.bytes));
}

TEST(CudaTeamFaultTest, OthersComputeWhatABrokenGpuHad) {
  if (CudaDeviceCount() < 2) GTEST_SKIP() << "fewer than two GPUs are here";
  testing::ExpectOthersCompute(kFaultRuns, {2}, [](int size) {
    CudaOptions options;
    for (int i = 0; i < size; ++i) options.devices.push_back(i);
    return CreateCudaBackends(options).value();
  });
}

INSTANTIATE_TEST_SUITE_P(All, CudaTeamTest,
                         ::testing::Values(PlanKind::kHeads, PlanKind::kGather,
                                           PlanKind::kRing, PlanKind::kStriped,
                                           PlanKind::kZigzag, PlanKind::kKv),
                         [](const ::testing::TestParamInfo<PlanKind>& info) {
                           return std::string(PlanName(info.param));
                         });

}  // namespace
}  // namespace attnd
