// Groups that run in slices on emulated GPUs have the bits that they have as a
// whole.

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/emulation/emulated_gpu.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"
#include "tests/thinned.h"

namespace attnd::emulation {
namespace {

using testing::CheckBackward;
using testing::ForwardOnly;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::Slack;

// As small as slices can be: a wave of tiles.
const cuda::SliceOptions kSmallest = {.time = absl::Nanoseconds(1),
                                      .least_waves = 1};

// Problems for kernels that are built, seeds 0 to problems - 1.
struct Family {
  std::string name;
  cuda::Gpu gpu;
  ProblemOptions options;
  int problems = 0;
};

ProblemOptions OfDims(ProblemOptions options, DType dtype, int64_t head_dim,
                      int64_t value_dim) {
  options.dtypes = {dtype};
  options.head_dim = head_dim;
  options.value_dim = value_dim;
  options.max_segments = options.max_group = 2;
  options.max_q_len = 300;
  options.max_kv_len = 260;
  return options;
}

// What kernels for Hopper take.
ProblemOptions Hopper(ProblemOptions options) {
  options.gap_step = 8;
  if (options.backward) {
    options.bias = options.softcap = options.odd_scales = false;
  }
  return options;
}

// Few queries, and columns enough to be cut into parts.
ProblemOptions Decode() {
  ProblemOptions options = OfDims(ForwardOnly(), DType::kF16, 64, 64);
  options.max_q_len = 20;
  options.max_kv_len = 9000;
  options.max_kv_heads = options.max_segments = 1;
  return options;
}

std::vector<Family> ForwardFamilies() {
  constexpr DType kF16 = DType::kF16, kBF16 = DType::kBF16;
  const ProblemOptions f = ForwardOnly();
  return {
      {"Float32", kAmpere, OfDims(f, DType::kF32, 64, 64), 6},
      {"Prefill64", kAmpere, OfDims(f, kF16, 64, 64), 6},
      {"Prefill128", kSmallAmpere, OfDims(f, kBF16, 128, 128), 4},
      {"Decode64", kAmpere, Decode(), 6},
      {"Hopper64", kSmallHopper, Hopper(OfDims(f, kF16, 64, 64)), 10},
      {"Hopper128", kSmallHopper, Hopper(OfDims(f, kBF16, 128, 128)), 8},
      {"Hopper256", kSmallHopper, Hopper(OfDims(f, kBF16, 256, 256)), 4},
      {"HopperDims", kSmallHopper, Hopper(OfDims(f, kBF16, 104, 72)), 4},
  };
}

std::vector<Family> BackwardFamilies() {
  constexpr DType kF16 = DType::kF16, kBF16 = DType::kBF16;
  const ProblemOptions b;
  return {
      {"Float32", kAmpere, OfDims(b, DType::kF32, 64, 64), 4},
      {"Large64", kAmpere, OfDims(b, kF16, 64, 64), 6},
      {"Small128", kSmallAmpere, OfDims(b, kBF16, 128, 128), 4},
      {"Hopper64", kSmallHopper, Hopper(OfDims(b, kF16, 64, 64)), 8},
      {"Hopper128", kSmallHopper, Hopper(OfDims(b, kBF16, 128, 128)), 6},
      {"Hopper192", kSmallHopper, Hopper(OfDims(b, kF16, 192, 128)), 4},
      {"Hopper256", kSmallHopper, Hopper(OfDims(b, kBF16, 256, 256)), 4},
      {"HopperHeads64", kLargeHopper, Hopper(OfDims(b, kF16, 64, 64)), 4},
  };
}

struct Case {
  Family family;
  int seed = 0;

  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.family.name << ", seed " << c.seed;
  }
};

std::vector<Case> CasesOf(const std::vector<Family>& families) {
  std::vector<Case> cases;
  for (const Family& family : families) {
    for (int seed = 0; seed < family.problems; seed += testing::kProblemStep) {
      cases.push_back({family, seed});
    }
  }
  return cases;
}

std::string Name(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.family.name, "Seed", info.param.seed);
}

// Three problems, which share launches.
class EmulatedSlicesTest : public ::testing::TestWithParam<Case> {
 protected:
  EmulatedSlicesTest() {
    for (uint32_t n = 0; n < 3; ++n) {
      problems_.push_back(std::make_unique<RandomProblem>(
          100 * GetParam().seed + n, GetParam().family.options));
    }
  }
  std::string Describe() const {
    std::string all;
    for (const auto& p : problems_) absl::StrAppend(&all, p->Describe(), "\n");
    return all;
  }

  std::vector<std::unique_ptr<RandomProblem>> problems_;
};

using EmulatedForwardSlicesTest = EmulatedSlicesTest;

TEST_P(EmulatedForwardSlicesTest, HaveTheBitsOfTheWhole) {
  std::vector<RandomProblem::ForwardOutputs> whole, sliced;
  std::vector<ForwardArgs> whole_group, sliced_group;
  for (const auto& p : problems_) {
    whole.push_back(p->MakeForwardOutputs());
    sliced.push_back(p->MakeForwardOutputs());
  }
  for (size_t n = 0; n < problems_.size(); ++n) {
    whole_group.push_back(problems_[n]->Forward(whole[n]));
    sliced_group.push_back(problems_[n]->Forward(sliced[n]));
  }
  EmulatedGpu gpu(GetParam().family.gpu, GetParam().seed);
  const absl::Status status = gpu.Forward(whole_group);
  ASSERT_TRUE(status.ok()) << status << "\n" << Describe();
  const auto slices = gpu.ForwardInSlices(sliced_group, kSmallest);
  ASSERT_TRUE(slices.ok()) << slices.status() << "\n" << Describe();
  for (size_t n = 0; n < problems_.size(); ++n) {
    EXPECT_TRUE(whole[n].o.bytes() == sliced[n].o.bytes() &&
                whole[n].lse.bytes() == sliced[n].lse.bytes())
        << n << " of these, in " << *slices << " slices:\n"
        << Describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedForwardSlicesTest,
                         ::testing::ValuesIn(CasesOf(ForwardFamilies())), Name);

using Bits = std::vector<std::vector<uint8_t>>;

Bits BitsOf(const RandomProblem::BackwardOutputs& out) {
  Bits bits = {out.dq.bytes()};
  for (const auto& dk : out.dk) bits.push_back(dk.bytes());
  for (const auto& dv : out.dv) bits.push_back(dv.bytes());
  return bits;
}

using EmulatedBackwardSlicesTest = EmulatedSlicesTest;

TEST_P(EmulatedBackwardSlicesTest, HaveTheBitsOfTheWholeIfDeterministic) {
  std::vector<RandomProblem::BackwardOutputs> whole, sliced;
  std::vector<BackwardArgs> whole_group, sliced_group;
  for (const auto& p : problems_) {
    whole.push_back(p->MakeBackwardOutputs());
    sliced.push_back(p->MakeBackwardOutputs());
  }
  for (size_t n = 0; n < problems_.size(); ++n) {
    whole_group.push_back(problems_[n]->Backward(whole[n]));
    sliced_group.push_back(problems_[n]->Backward(sliced[n]));
  }
  EmulatedGpu gpu(GetParam().family.gpu, GetParam().seed);
  const absl::Status status = gpu.Backward(whole_group, true);
  ASSERT_TRUE(status.ok()) << status << "\n" << Describe();
  const auto slices = gpu.BackwardInSlices(sliced_group, true, kSmallest);
  ASSERT_TRUE(slices.ok()) << slices.status() << "\n" << Describe();
  for (size_t n = 0; n < problems_.size(); ++n) {
    EXPECT_TRUE(BitsOf(whole[n]) == BitsOf(sliced[n]))
        << n << " of these, in " << *slices << " slices:\n"
        << Describe();
  }
}

TEST_P(EmulatedBackwardSlicesTest, AreAccurateInAnyOrder) {
  EmulatedGpu gpu(GetParam().family.gpu, GetParam().seed);
  EXPECT_TRUE(CheckBackward(
      *problems_.front(),
      [&](const BackwardArgs& args) {
        return gpu.BackwardInSlices({&args, 1}, false, kSmallest).status();
      },
      Slack::kApproximations));
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedBackwardSlicesTest,
                         ::testing::ValuesIn(CasesOf(BackwardFamilies())),
                         Name);

// Large enough to be cut, whatever kernel runs it.
TEST(EmulatedSlicesCountTest, ProblemsOfManyTilesAreCut) {
  for (const Family& family : ForwardFamilies()) {
    int most = 0;
    for (int seed = 0; seed < family.problems; ++seed) {
      const RandomProblem problem(seed, family.options);
      auto out = problem.MakeForwardOutputs();
      EmulatedGpu gpu(family.gpu, seed);
      const auto slices =
          gpu.ForwardInSlices({problem.Forward(out)}, kSmallest);
      ASSERT_TRUE(slices.ok()) << slices.status();
      most = std::max(most, *slices);
    }
    EXPECT_GE(most, 2) << family.name;
  }
}

}  // namespace
}  // namespace attnd::emulation
