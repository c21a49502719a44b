// What holds of attention whatever computes it, tried on every reference
// algorithm: gradients are derivatives, bad numbers stay where they are, odd
// scales work, a token cancels.

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "kernels/reference/head.h"
#include "kernels/reference/naive.h"
#include "kernels/reference/online_softmax.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/owned_tensor.h"

namespace attnd {
namespace {

using testing::OwnedRows;
using testing::OwnedTensor;

constexpr Algorithm kAlgorithms[] = {
    Algorithm::kNaive, Algorithm::kOnlineSoftmax, Algorithm::kFlashAttention1,
    Algorithm::kFlashAttention2};
constexpr double kInf = std::numeric_limits<double>::infinity();

// A small f32 problem that tests may change before using it.
struct SmallProblem {
  static constexpr int64_t kBatch = 2, kRows = 5, kColumns = 7, kHeads = 4,
                           kKvHeads = 2, kDim = 4, kValueDim = 3;

  explicit SmallProblem(uint32_t seed) : random(seed) {
    Fill(q);
    Fill(k);
    Fill(v);
    Fill(d_o);
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t h = 0; h < kHeads; ++h)
        for (int64_t i = 0; i < kRows; ++i) d_lse.Set(b, h, i, normal(random));
  }

  void Fill(OwnedTensor& t) {
    for (int64_t b = 0; b < t.batch(); ++b)
      for (int64_t i = 0; i < t.tokens(); ++i)
        for (int64_t h = 0; h < t.heads(); ++h)
          for (int64_t d = 0; d < t.dim(); ++d)
            t.Set(b, i, h, d, normal(random));
  }

  // `p` with the tensors' views; valid until the next call.
  Problem View() {
    Problem view = p;
    view.batch = kBatch;
    view.q_len = kRows;
    view.q_heads = kHeads;
    view.kv_heads = kKvHeads;
    view.head_dim = kDim;
    view.value_dim = kValueDim;
    view.q = std::as_const(q).view();
    segment.k = std::as_const(k).view();
    segment.v = std::as_const(v).view();
    segment.len = kColumns;
    view.kv = absl::MakeConstSpan(&segment, 1);
    if (with_bias) {
      const ConstTensorView b = std::as_const(bias).view();
      view.bias = {b.data, DType::kF32, b.batch_stride, b.head_stride,
                   b.token_stride};
    }
    return view;
  }

  std::mt19937 random;
  std::normal_distribution<double> normal;
  OwnedTensor q{DType::kF32, kBatch, kRows, kHeads, kDim};
  OwnedTensor k{DType::kF32, kBatch, kColumns, kKvHeads, kDim};
  OwnedTensor v{DType::kF32, kBatch, kColumns, kKvHeads, kValueDim};
  OwnedTensor d_o{DType::kF32, kBatch, kRows, kHeads, kValueDim};
  OwnedTensor bias{DType::kF32, kBatch, kRows, kHeads, kColumns, true};
  OwnedRows d_lse{kBatch, kHeads, kRows};
  bool with_bias = false;
  KvSegment segment;
  Problem p;
};

// sum(dO * O) + sum(dLSE * LSE): its derivatives are what backward gives.
double Loss(SmallProblem& small) {
  const auto exact = reference::OracleForward(small.View());
  const std::vector<double> d_o = small.d_o.Values(),
                            d_lse = small.d_lse.Values();
  double loss = 0;
  for (size_t i = 0; i < d_o.size(); ++i) loss += d_o[i] * exact.o[i];
  for (size_t i = 0; i < d_lse.size(); ++i)
    if (std::isfinite(exact.lse[i])) loss += d_lse[i] * exact.lse[i];
  return loss;
}

// The derivative along `direction` by central differences, at two step sizes.
struct Derivative {
  double coarse, fine;
  double Extrapolated() const {
    return fine + (fine - coarse) / 3;
  }  // h^4 remains
  double Uncertainty() const { return std::abs(fine - coarse) / 3; }
};
Derivative Differentiate(SmallProblem& small, OwnedTensor& t, int64_t b,
                         int64_t i, int64_t h, int64_t d) {
  const double x = t.Get(b, i, h, d);
  const auto slope = [&](double step) {
    t.Set(b, i, h, d, x + step);
    const double up = t.Get(b, i, h, d), loss_up = Loss(small);
    t.Set(b, i, h, d, x - step);
    const double down = t.Get(b, i, h, d), loss_down = Loss(small);
    t.Set(b, i, h, d, x);
    return (loss_up - loss_down) / (up - down);  // steps as float32 holds them
  };
  return {slope(0x1p-8), slope(0x1p-9)};
}

void ExpectDerivatives(SmallProblem& small) {
  const auto exact = reference::OracleForward(small.View());
  OwnedRows lse(small.kBatch, small.kHeads, small.kRows);
  OwnedRows delta(small.kBatch, small.kHeads, small.kRows);
  for (int64_t b = 0, row = 0; b < small.kBatch; ++b) {
    for (int64_t h = 0; h < small.kHeads; ++h) {
      for (int64_t i = 0; i < small.kRows; ++i, ++row) {
        lse.Set(b, h, i, exact.lse[row]);
        double sum = 0;
        for (int64_t d = 0; d < small.kValueDim; ++d)
          sum += small.d_o.Get(b, i, h, d) *
                 exact.o[((b * small.kRows + i) * small.kHeads + h) *
                             small.kValueDim +
                         d];
        delta.Set(b, h, i, sum);
      }
    }
  }
  BackwardArgs args;
  args.problem = small.View();
  args.d_o = std::as_const(small.d_o).view();
  args.lse = std::as_const(lse).view();
  args.delta = std::as_const(delta).view();
  args.d_lse = std::as_const(small.d_lse).view();
  const auto gradients = reference::OracleBackward(args);

  const auto check = [&](OwnedTensor& t, const std::vector<double>& gradient,
                         const char* name) {
    // LSE and delta are float32: the gradient is off by their roundings, of
    // which a token sums up to kRows * kHeads.
    const double most = *std::max_element(
        gradient.begin(), gradient.end(),
        [](double a, double b) { return std::abs(a) < std::abs(b); });
    const double rounding = 0x1p-24 * small.kRows * small.kHeads * 8 *
                            (1 + std::abs(most)) *
                            (1 + std::abs(small.p.scale));
    size_t index = 0;
    for (int64_t b = 0; b < t.batch(); ++b)
      for (int64_t i = 0; i < t.tokens(); ++i)
        for (int64_t h = 0; h < t.heads(); ++h)
          for (int64_t d = 0; d < t.dim(); ++d, ++index) {
            if (index % 3 != 0) continue;  // a third of them tells
            const Derivative slope = Differentiate(small, t, b, i, h, d);
            ASSERT_NEAR(gradient[index], slope.Extrapolated(),
                        slope.Uncertainty() + rounding)
                << name << "[" << index << "]";
          }
  };
  check(small.q, gradients.dq, "dq");
  check(small.k, gradients.dk[0], "dk");
  check(small.v, gradients.dv[0], "dv");
}

TEST(GradientTest, IsTheDerivative) {
  SmallProblem small(1);
  small.p.scale = 0.5;
  ExpectDerivatives(small);
}

TEST(GradientTest, IsTheDerivativeWithASoftcap) {
  SmallProblem small(2);
  small.p.scale = 1;
  small.p.softcap = 1.5;
  ExpectDerivatives(small);
}

TEST(GradientTest, IsTheDerivativeUnderAMaskAndBias) {
  SmallProblem small(3);
  small.p.scale = -0.7;
  small.p.mask = {.causal = true, .left = 3};
  small.p.q_start = -1;  // the first row sees nothing
  small.with_bias = true;
  small.Fill(small.bias);
  small.bias.Set(0, 4, 1, 2, -kInf);
  ExpectDerivatives(small);
}

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
