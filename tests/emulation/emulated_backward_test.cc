// Backward on emulated GPUs, judged by float64: each test is one random
// problem, run as it comes and deterministically.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference.h"
#include "tests/emulation/emulated_gpu.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/chained_backward.h"
#include "tests/kernels/cuda/gradient_problem.h"
#include "tests/kernels/cuda/large_scores.h"
#include "tests/kernels/one_hot_problem.h"
#include "tests/kernels/random_problem.h"
#include "tests/thinned.h"

namespace attnd::emulation {
namespace {

using testing::CheckBackward;
using testing::GradientProblem;
using testing::HugeProducts;
using testing::HugeProductsOf;
using testing::LargeScores;
using testing::OneHotProblem;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::Slack;
using testing::Thinned;

// Problems for kernels that are built, seeds 0 to problems - 1.
struct Family {
  std::string name;
  cuda::Gpu gpu;
  ProblemOptions options;
  int problems = 0;
};

ProblemOptions OfDims(DType dtype, int64_t head_dim, int64_t value_dim) {
  ProblemOptions options;
  options.dtypes = {dtype};
  options.head_dim = head_dim;
  options.value_dim = value_dim;
  options.max_batch = options.max_group = options.max_segments = 2;
  options.max_q_len = 200;
  options.max_kv_len = 260;
  return options;
}

// What kernels for Hopper take: aligned rows, and scores that are products and
// a positive scale.
ProblemOptions Hopper(DType dtype, int64_t head_dim, int64_t value_dim) {
  ProblemOptions options = OfDims(dtype, head_dim, value_dim);
  options.gap_step = 8;
  options.bias = options.softcap = options.odd_scales = false;
  return options;
}

// Every row sees every column of its sequence.
ProblemOptions HopperFull(DType dtype, int64_t dim) {
  ProblemOptions options = Hopper(dtype, dim, dim);
  options.max_q_len = options.max_kv_len = 500;
  options.max_batch = options.max_kv_heads = 1;
  options.masks = options.empty_sizes = false;
  return options;
}

// Up to six heads, of up to four blocks of columns each and more.
ProblemOptions HopperHeads(DType dtype, int64_t dim) {
  ProblemOptions options = Hopper(dtype, dim, dim);
  options.max_q_len = 150;
  options.max_kv_len = 500;
  options.max_batch = 3;
  options.empty_sizes = false;
  return options;
}

std::vector<Family> Families() {
  constexpr DType kF16 = DType::kF16, kBF16 = DType::kBF16;
  return {
      {"Float32", kAmpere, OfDims(DType::kF32, 64, 64), 10},
      {"Float32Dims", kAmpere, OfDims(DType::kF32, 40, 23), 6},
      {"Large64", kAmpere, OfDims(kF16, 64, 64), 8},
      {"Large128", kAmpere, OfDims(kBF16, 128, 128), 6},
      {"LargeDims", kAmpere, OfDims(kBF16, 100, 111), 6},
      {"Small64", kSmallAmpere, OfDims(kF16, 64, 64), 8},
      {"Small128", kSmallAmpere, OfDims(kBF16, 128, 128), 6},
      {"Small256", kSmallAmpere, OfDims(kBF16, 256, 256), 4},
      {"Hopper64", kHopper, Hopper(kF16, 64, 64), 16},
      {"Hopper128", kHopper, Hopper(kBF16, 128, 128), 16},
      {"HopperDims", kHopper, Hopper(kBF16, 104, 72), 8},
      {"Hopper256", kHopper, Hopper(kBF16, 256, 256), 8},
      {"Hopper192", kHopper, Hopper(kF16, 192, 128), 8},
      {"HopperFull256", kHopper, HopperFull(kBF16, 256), 4},
      {"HopperFull64", kHopper, HopperFull(kF16, 64), 6},
      {"HopperFull128", kHopper, HopperFull(kBF16, 128), 6},
      {"HopperHeads64", kLargeHopper, HopperHeads(kF16, 64), 6},
      {"HopperHeads256", kLargeHopper, HopperHeads(kBF16, 256), 4},
  };
}

struct Case {
  Family family;
  int seed = 0;

  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.family.name << ", seed " << c.seed;
  }
};

// The problem as a part of a sequence, which has this K/V head first: so its
// columns go up where blocks take turns (visits.h).
BackwardArgs ColumnsUp(BackwardArgs args) {
  const Problem& p = args.problem;
  args.problem.whole =
      Whole{p.q_len, PaddedKvLen(p), p.q_heads, p.kv_heads, /*kv_head=*/255};
  return args;
}

class EmulatedBackwardTest : public ::testing::TestWithParam<Case> {};

// Every second one is behind another in a group.
TEST_P(EmulatedBackwardTest, IsAccurate) {
  const Family& family = GetParam().family;
  const int seed = GetParam().seed;
  const RandomProblem problem(seed, family.options);
  const RandomProblem other(1000 + seed, family.options);
  EmulatedGpu gpu(family.gpu, seed);
  for (bool deterministic : {false, true}) {
    auto other_out = other.MakeBackwardOutputs();
    const auto run = [&](const BackwardArgs& args) {
      std::vector<BackwardArgs> group = {seed / 2 % 2 == 0 ? args
                                                           : ColumnsUp(args)};
      if (seed % 2 == 1) {
        group.insert(group.begin(), other.Backward(other_out));
      }
      return gpu.Backward(group, deterministic);
    };
    EXPECT_TRUE(CheckBackward(problem, run, Slack::kApproximations))
        << "deterministic " << deterministic;
  }
}

// The first of each family, at most so many.
std::vector<Case> Cases(int most) {
  std::vector<Case> cases;
  for (const Family& family : Families()) {
    for (int seed = 0; seed < std::min(family.problems, most);
         seed += testing::kProblemStep) {
      cases.push_back({family, seed});
    }
  }
  return cases;
}

std::string Name(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.family.name, "Seed", info.param.seed);
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedBackwardTest,
                         ::testing::ValuesIn(Cases(1000)), Name);

// Rows and columns in several runs, each of which adds to the gradients that
// those before gave: in place where the seed is odd.
class EmulatedBackwardLinksTest : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedBackwardLinksTest, LinksGiveTheWhole) {
  const auto& [family, seed] = GetParam();
  const RandomProblem problem(seed, family.options);
  EmulatedGpu gpu(family.gpu, seed);
  const auto run = [&](const BackwardArgs& link) {
    return gpu.Backward({link}, /*deterministic=*/seed == 1);
  };
  EXPECT_TRUE(CheckBackward(
      problem,
      [&](const BackwardArgs& args) {
        return testing::BackwardInLinks(args, 2, seed, seed % 2 == 1, run);
      },
      Slack::kApproximations));
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedBackwardLinksTest,
                         ::testing::ValuesIn(Cases(3)), Name);

// Scores that lose their meaning if they are treated as others are.
class EmulatedBackwardHugeTest : public ::testing::TestWithParam<Family> {};

TEST_P(EmulatedBackwardHugeTest, HugeProductsGiveExactOneHotResults) {
  const auto& [name, gpu_info, options, problems] = GetParam();
  const DType dtype = options.dtypes[0];
  for (const HugeProducts& huge : Thinned(HugeProductsOf(dtype))) {
    for (bool own_forward : {false, true}) {
      if (!own_forward && huge.size > 0x1p63) continue;  // reference has no LSE
      SCOPED_TRACE(absl::StrCat("size ", huge.size, " low ", huge.low,
                                " own forward ", own_forward));
      OneHotProblem problem(dtype, 1.0f, options.head_dim, huge);
      EmulatedGpu gpu(gpu_info, 1);
      absl::Status status =
          own_forward ? gpu.Forward({&problem.forward, 1})
                      : reference::Forward(problem.forward, Algorithm::kNaive);
      ASSERT_TRUE(status.ok()) << status;
      status = gpu.Backward({&problem.backward, 1}, false);
      ASSERT_TRUE(status.ok()) << status;
      problem.ExpectBackward();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Dims, EmulatedBackwardHugeTest,
    ::testing::Values(
        Family{"Hopper64", kHopper, OfDims(DType::kF16, 24, 24)},
        Family{"Hopper128", kHopper, OfDims(DType::kBF16, 104, 104)},
        Family{"Hopper256", kHopper, OfDims(DType::kBF16, 256, 256)},
        Family{"Float32", kAmpere, OfDims(DType::kF32, 24, 24)},
        Family{"Large64", kAmpere, OfDims(DType::kF16, 24, 24)},
        Family{"Large128", kAmpere, OfDims(DType::kBF16, 104, 104)}),
    [](const auto& info) { return info.param.name; });

// Forward and backward, also by the slow paths, which a bias takes. Few rows
// are decoded.
class EmulatedBackwardLargeScoresTest
    : public ::testing::TestWithParam<Family> {};

TEST_P(EmulatedBackwardLargeScoresTest, AreThoseOfForward) {
  const auto& [name, gpu_info, options, problems] = GetParam();
  const DType dtype = options.dtypes[0];
  const double unit = testing::RoundingUnit(dtype);
  for (double size : Thinned<double>({300, 100, 10000})) {
    for (int64_t q_len : {5, 140}) {
      for (bool bias : {false, true}) {
        SCOPED_TRACE(
            absl::StrCat("size ", size, " q_len ", q_len, " bias ", bias));
        GradientProblem problem(7, {.dtype = dtype,
                                    .q_len = q_len,
                                    .kv_len = 150,
                                    .q_heads = 2,
                                    .dim = options.head_dim});
        LargeScores scores(size, problem);
        if (bias) {
          problem.forward.AddBias();
          problem.problem().bias = problem.forward.args.problem.bias;
        }
        ForwardArgs forward = problem.forward.args;
        forward.problem = problem.problem();
        EmulatedGpu gpu(gpu_info, 1);
        ASSERT_TRUE(gpu.Forward({&forward, 1}).ok());
        ASSERT_TRUE(gpu.Backward({&problem.args, 1}, false).ok());
        EXPECT_LE(scores.WorstOfDv(), unit + 0x1p-20);
        scores.RaiseLse(1.3f);
        ASSERT_TRUE(gpu.Backward({&problem.args, 1}, false).ok());
        EXPECT_LE(scores.WorstOfDv(), 2 * unit + 0x1p-19) << "raised";
      }
    }
  }
}

// Rows of both kinds in one tile, under a mask that leaves some rows nothing.
TEST_P(EmulatedBackwardLargeScoresTest, AreAccurateBesideOthers) {
  const auto& [name, gpu_info, options, problems] = GetParam();
  GradientProblem problem(5, {.dtype = options.dtypes[0],
                              .q_len = 200,
                              .kv_len = 150,
                              .q_heads = 2,
                              .dim = options.head_dim,
                              .mask = {.causal = true}});
  problem.problem().q_start = -20;
  for (int64_t i = 1; i < 200; i += 3) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t d = 0; d < options.head_dim; ++d) {
        const double x = problem.forward.q.Get(0, i, h, d);
        problem.forward.q.Set(0, i, h, d, 2000 * x);
      }
    }
  }
  problem.Solve();
  EmulatedGpu gpu(gpu_info, 1);
  ASSERT_TRUE(gpu.Backward({&problem.args, 1}, false).ok());
  EXPECT_TRUE(problem.IsAccurate());
}

INSTANTIATE_TEST_SUITE_P(
    Dims, EmulatedBackwardLargeScoresTest,
    ::testing::Values(
        Family{"Hopper64", kHopper, OfDims(DType::kF16, 64, 64)},
        Family{"Hopper128", kHopper, OfDims(DType::kBF16, 104, 104)},
        Family{"Hopper256", kHopper, OfDims(DType::kBF16, 256, 256)},
        Family{"Float32", kAmpere, OfDims(DType::kF32, 40, 40)},
        Family{"Large64", kAmpere, OfDims(DType::kF16, 40, 40)},
        Family{"Small128", kSmallAmpere, OfDims(DType::kBF16, 104, 104)}),
    [](const auto& info) { return info.param.name; });

// A huge scale, and upstream gradients so small that what dQ is summed up of is
// below f32's normal numbers before it is multiplied by the scale.
TEST(EmulatedBackwardScaleTest, DqOfHugeScalesIsNotLostBeforeItIsScaled) {
  constexpr double kScale = 0x1p98;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (float sign : {1.0f, -1.0f}) {
      SCOPED_TRACE(
          absl::StrCat("dtype ", static_cast<int>(dtype), " sign ", sign));
      GradientProblem problem(3, {.dtype = dtype,
                                  .q_len = 70,
                                  .kv_len = 90,
                                  .q_heads = 2,
                                  .dim = dtype == DType::kF32 ? 64 : 128});
      const auto multiply = [](testing::OwnedTensor& t, double by) {
        for (int64_t i = 0; i < t.tokens(); ++i) {
          for (int64_t h = 0; h < t.heads(); ++h) {
            for (int64_t d = 0; d < t.dim(); ++d)
              t.Set(0, i, h, d, by * t.Get(0, i, h, d));
          }
        }
      };
      multiply(problem.forward.q, 0x1p-3 * 0x1p12 / kScale);
      multiply(problem.forward.k, 0x1p-12);
      multiply(problem.d_o, 0x1p-121);
      problem.problem().scale = sign * 1.3f * kScale;
      problem.Solve();
      EmulatedGpu gpu(kAmpere, 1);
      const absl::Status status = gpu.Backward({&problem.args, 1}, false);
      ASSERT_TRUE(status.ok()) << status;
      const std::vector<double> exact =
          reference::OracleBackward(problem.args).dq;
      const std::vector<double> got = problem.out.dq.Values();
      ASSERT_EQ(got.size(), exact.size());
      double most = 0, off = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        most = std::max(most, std::abs(exact[i]));
        off = std::max(off, std::abs(got[i] - exact[i]));
      }
      EXPECT_LE(off, 0x1p-6 * most) << "of " << most;
    }
  }
}

// The memory of every output.
using Bits = std::vector<std::vector<uint8_t>>;

class EmulatedBackwardRepeatTest : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedBackwardRepeatTest, GivesTheSameBitsInAnyOrderOfEvents) {
  const Family& family = GetParam().family;
  const int seed = GetParam().seed;
  const RandomProblem problem(seed, family.options);
  std::vector<Bits> runs;
  for (int run = 0; run < 3; ++run) {
    EmulatedGpu gpu(family.gpu, 100 * run + seed);
    auto out = problem.MakeBackwardOutputs();
    const BackwardArgs args = problem.Backward(out);
    const absl::Status status =
        gpu.Backward({seed % 2 == 0 ? args : ColumnsUp(args)}, true);
    ASSERT_TRUE(status.ok()) << status;
    runs.push_back({out.dq.bytes()});
    for (const auto& d_k : out.dk) runs.back().push_back(d_k.bytes());
    for (const auto& d_v : out.dv) runs.back().push_back(d_v.bytes());
    EXPECT_TRUE(runs.back() == runs.front()) << problem.Describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedBackwardRepeatTest,
                         ::testing::ValuesIn(Cases(4)), Name);

// The view of head `head` of a tensor or of rows, and of what follows.
template <class View>
View FromHead(View view, int64_t head, int64_t element_bytes) {
  if (!view) return view;
  auto* data = reinterpret_cast<uintptr_t*>(&view.data);
  *data += head * view.head_stride * element_bytes;
  return view;
}

// One K/V head of a problem, which is a part of a sequence.
struct OneHead {
  OneHead(const BackwardArgs& whole, int64_t kv_head) : args(whole) {
    const Problem& from = whole.problem;
    const int64_t head = kv_head * from.group();
    const auto tensor = [](auto view, int64_t first) {
      return FromHead(view, first, SizeOf(view.dtype));
    };
    const auto rows = [&](auto view) {
      return FromHead(view, head, sizeof(float));
    };
    args.d_o = tensor(whole.d_o, head);
    args.o = tensor(whole.o, head);
    args.dq = tensor(whole.dq, head);
    args.lse = rows(whole.lse);
    args.delta = rows(whole.delta);
    args.d_lse = rows(whole.d_lse);
    for (const KvSegment& s : from.kv) {
      segments.push_back(s);
      segments.back().k = tensor(s.k, kv_head);
      segments.back().v = tensor(s.v, kv_head);
      segments.back().dk = tensor(s.dk, kv_head);
      segments.back().dv = tensor(s.dv, kv_head);
    }
    Problem& p = args.problem;
    p.kv = segments;
    p.q = tensor(from.q, head);
    p.bias = FromHead(from.bias, head, SizeOf(from.bias.dtype));
    p.q_heads = from.group();
    p.kv_heads = 1;
    p.whole->kv_head += kv_head;
  }
  OneHead(const OneHead&) = delete;
  OneHead& operator=(const OneHead&) = delete;

  std::vector<KvSegment> segments;
  BackwardArgs args;
};

class EmulatedBackwardHeadsTest : public ::testing::TestWithParam<Family> {};

// As where several GPUs share a problem's heads, of some of which columns go
// up. Columns are enough for sums of dQ to depend on their order.
TEST_P(EmulatedBackwardHeadsTest, HaveTheBitsThatTheyHaveTogether) {
  const int64_t dim = GetParam().options.head_dim;
  GradientProblem problem(dim, {.dtype = GetParam().options.dtypes[0],
                                .q_len = 70,
                                .kv_len = 500,
                                .q_heads = 4,
                                .kv_heads = 2,
                                .dim = dim,
                                .mask = {.left = 300}});
  problem.Solve();
  // Of four blocks of columns a head columns of so many heads go down before
  // others go up. So the second one's do.
  const int64_t down = dim == 256 ? 16 : 32;
  Problem& p = problem.problem();
  p.whole = WholeOf(p, p.q_len, p.kv[0].len);
  p.whole->kv_head = down - 1;
  p.whole->kv_heads = down + 10;
  std::vector<Bits> runs;
  for (bool apart : {false, true}) {
    problem.PoisonOutputs();
    EmulatedGpu gpu(GetParam().gpu, dim);
    for (int64_t h = 0; h < (apart ? p.kv_heads : 1); ++h) {
      const OneHead head(problem.args, h);
      const absl::Status status =
          gpu.Backward({apart ? head.args : problem.args}, true);
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(problem.IsAccurate());
    runs.push_back(problem.Bits());
  }
  EXPECT_TRUE(runs[0] == runs[1]);
}

INSTANTIATE_TEST_SUITE_P(
    Dims, EmulatedBackwardHeadsTest,
    ::testing::Values(
        Family{"Hopper64", kHopper, OfDims(DType::kF16, 64, 64)},
        Family{"Hopper128", kLargeHopper, OfDims(DType::kBF16, 128, 128)},
        Family{"Hopper256", kHopper, OfDims(DType::kBF16, 256, 256)},
        Family{"Float32", kAmpere, OfDims(DType::kF32, 40, 40)},
        Family{"Large64", kAmpere, OfDims(DType::kF16, 40, 40)}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnd::emulation
