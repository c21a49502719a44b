// The oracle's gradients are derivatives of what its forward gives.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/magnitudes.h"
#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/small_problem.h"

namespace attnd {
namespace {

using testing::OwnedRows;
using testing::OwnedTensor;
using testing::SmallProblem;

constexpr double kInf = std::numeric_limits<double>::infinity();

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

  const auto magnitudes = testing::BackwardMagnitudes(args);

  const auto check = [&](OwnedTensor& t, const std::vector<double>& gradient,
                         const std::vector<double>& magnitude,
                         const char* name) {
    size_t index = 0;
    for (int64_t b = 0; b < t.batch(); ++b)
      for (int64_t i = 0; i < t.tokens(); ++i)
        for (int64_t h = 0; h < t.heads(); ++h)
          for (int64_t d = 0; d < t.dim(); ++d, ++index) {
            if (index % 3 != 0) continue;  // a third of them tells
            // LSE and delta went in rounded to float32.
            const Derivative slope = Differentiate(small, t, b, i, h, d);
            ASSERT_NEAR(gradient[index], slope.Extrapolated(),
                        slope.Uncertainty() + 0x1p-24 * magnitude[index])
                << name << "[" << index << "]";
          }
  };
  check(small.q, gradients.dq, magnitudes.dq, "dq");
  check(small.k, gradients.dk[0], magnitudes.dk[0], "dk");
  check(small.v, gradients.dv[0], magnitudes.dv[0], "dv");
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

}  // namespace
}  // namespace attnd
