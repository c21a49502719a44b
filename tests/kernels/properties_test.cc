// What holds of attention whatever computes it, tried on every reference
// algorithm: bad numbers stay where they are, odd scales work, a token cancels.

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "kernels/reference/naive.h"
#include "kernels/reference/online_softmax.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/small_problem.h"

namespace attnd {
namespace {

using testing::OwnedRows;
using testing::OwnedTensor;
using testing::SmallProblem;

constexpr Algorithm kAlgorithms[] = {
    Algorithm::kNaive, Algorithm::kOnlineSoftmax, Algorithm::kFlashAttention1,
    Algorithm::kFlashAttention2};
constexpr double kInf = std::numeric_limits<double>::infinity();

// Runs forward into fresh outputs.
struct Outputs {
  std::vector<double> o, lse;
};
Outputs RunForward(SmallProblem& small, Algorithm algorithm) {
  OwnedTensor o(DType::kF32, small.kBatch, small.kRows, small.kHeads,
                small.kValueDim);
  OwnedRows lse(small.kBatch, small.kHeads, small.kRows);
  EXPECT_TRUE(
      reference::Forward({small.View(), o.view(), lse.view()}, algorithm).ok());
  return {o.Values(), lse.Values()};
}

TEST(ContainmentTest, BadKeysReachOnlyRowsOfTheirOwnHeadThatSeeThem) {
  for (Algorithm algorithm : kAlgorithms) {
    for (double bad : {static_cast<double>(NAN), kInf, -kInf}) {
      SmallProblem small(4);
      small.p.mask.causal = true;  // row i sees columns up to i + 2
      const Outputs clean = RunForward(small, algorithm);
      small.k.Set(1, 5, 1, 0, bad);
      small.v.Set(1, 5, 1, 1, bad);
      const Outputs dirty = RunForward(small, algorithm);
      for (int64_t b = 0, row = 0; b < small.kBatch; ++b)
        for (int64_t h = 0; h < small.kHeads; ++h)
          for (int64_t i = 0; i < small.kRows; ++i, ++row)
            if (!(b == 1 && h >= 2 && i >= 3)) {
              EXPECT_EQ(dirty.lse[row], clean.lse[row]);
              for (int64_t d = 0; d < small.kValueDim; ++d) {
                const int64_t at = ((b * small.kRows + i) * small.kHeads + h) *
                                       small.kValueDim +
                                   d;
                EXPECT_EQ(dirty.o[at], clean.o[at]);
              }
            }
    }
  }
}

TEST(ContainmentTest, ANanThatIsSeenShows) {
  for (Algorithm algorithm : kAlgorithms) {
    SmallProblem small(5);
    for (int64_t j = 0; j < small.kColumns; ++j) small.k.Set(0, j, 0, 0, NAN);
    const Outputs out = RunForward(small, algorithm);
    EXPECT_TRUE(std::isnan(out.o[0]));
    EXPECT_TRUE(std::isnan(out.lse[0]));
  }
}

TEST(ScaleTest, OfZeroAveragesValues) {
  for (Algorithm algorithm : kAlgorithms) {
    SmallProblem small(6);
    small.p.scale = 0;
    const Outputs out = RunForward(small, algorithm);
    double mean = 0;
    for (int64_t j = 0; j < small.kColumns; ++j)
      mean += small.v.Get(0, j, 0, 0) / small.kColumns;
    EXPECT_FLOAT_EQ(out.o[0], mean);
    EXPECT_FLOAT_EQ(out.lse[0], std::log(small.kColumns));
  }
}

TEST(ScaleTest, AsLargeAsFloatsGetPicksValuesAndNeverGivesNan) {
  for (Algorithm algorithm : kAlgorithms) {
    for (float scale : {1e30f, -1e30f, 3e38f, -3e38f}) {
      SmallProblem small(7);
      small.p.scale = scale;
      const Outputs out = RunForward(small, algorithm);
      for (double value : out.o) EXPECT_TRUE(std::isfinite(value)) << scale;
      for (double value : out.lse) EXPECT_FALSE(std::isnan(value)) << scale;
    }
  }
}

TEST(CancelTest, ACancelledProblemSaysSo) {
  for (Algorithm algorithm : kAlgorithms) {
    SmallProblem small(8);
    CancelToken token;
    token.Cancel();
    small.p.cancel = &token;
    OwnedTensor o(DType::kF32, small.kBatch, small.kRows, small.kHeads,
                  small.kValueDim);
    EXPECT_EQ(
        reference::Forward({small.View(), o.view(), {}}, algorithm).code(),
        absl::StatusCode::kCancelled);
    OwnedRows rows(small.kBatch, small.kHeads, small.kRows);
    BackwardArgs args;
    args.problem = small.View();
    args.d_o = std::as_const(small.d_o).view();
    args.lse = args.delta = std::as_const(rows).view();
    EXPECT_EQ(reference::Backward(args, algorithm).code(),
              absl::StatusCode::kCancelled);
  }
}

TEST(AutoTest, IsNoReferenceAlgorithm) {
  EXPECT_EQ(reference::Forward({}, Algorithm::kAuto).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(reference::Backward({}, Algorithm::kAuto).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SoftmaxTest, TwoPassesGiveWhatThreeDo) {
  std::mt19937 random(9);
  std::normal_distribution<double> normal(0, 5);
  for (int64_t n : {1, 2, 17, 100}) {
    std::vector<double> three(n);
    for (double& s : three) s = normal(random);
    three[n / 2] = -kInf;
    std::vector<double> two = three;
    const double lse = reference::SoftmaxThreePass(n, three.data());
    EXPECT_DOUBLE_EQ(reference::SoftmaxTwoPass(n, two.data()), lse);
    for (int64_t j = 0; j < n; ++j) EXPECT_NEAR(two[j], three[j], 0x1p-50);
  }
}

TEST(ScratchBytesTest, SaturatesAndGrowsWithTheMatrixForNaiveOnly) {
  Problem p;
  p.batch = 1;
  p.q_len = 4096;
  p.q_heads = p.kv_heads = 1;
  p.head_dim = p.value_dim = 64;
  KvSegment segment;
  segment.len = 4096;
  p.kv = absl::MakeConstSpan(&segment, 1);
  const int64_t matrix = 4096 * 4096 * 4;
  EXPECT_GE(reference::ScratchBytes(Op::kForward, p, Algorithm::kNaive),
            2 * matrix);
  EXPECT_LT(
      reference::ScratchBytes(Op::kBackward, p, Algorithm::kFlashAttention2),
      matrix / 4);
  p.q_len = segment.len = int64_t{1} << 31;
  EXPECT_EQ(reference::ScratchBytes(Op::kForward, p, Algorithm::kNaive),
            std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace attnd
