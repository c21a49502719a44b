#include "tests/kernels/added_gradient_checks.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/small_problem.h"

namespace attnd::testing {
namespace {

// A small problem, of which some rows see nothing and some tokens lie past
// their sequence's lengths, and its gradients.
struct Gradients {
  Gradients() {
    for (int64_t b = 0; b < SmallProblem::kBatch; ++b) {
      for (int64_t h = 0; h < SmallProblem::kHeads; ++h) {
        for (int64_t i = 0; i < SmallProblem::kRows; ++i) {
          lse.Set(b, h, i,
                  i == 0 ? -std::numeric_limits<double>::infinity() : 1.5);
          delta.Set(b, h, i, 0.25);
        }
      }
    }
    args.problem = small.View();
    args.problem.q_lens = q_lens;
    args.problem.kv = {&segment, 1};
    args.d_o = std::as_const(small.d_o).view();
    args.lse = std::as_const(lse).view();
    args.delta = std::as_const(delta).view();
    args.dq = dq.view();
    segment = small.segment;
    segment.lens = lens;
    segment.dk = dk.view();
    segment.dv = dv.view();
  }

  std::vector<OwnedTensor*> all() { return {&dq, &dk, &dv}; }
  // Adds to what `before` has.
  void AddTo(const Gradients& before) {
    args.dq_before = before.dq.view();
    segment.dk_before = before.dk.view();
    segment.dv_before = before.dv.view();
  }
  void Fill() {
    for (OwnedTensor* t : all()) small.Fill(*t);
  }

  SmallProblem small{1};
  OwnedTensor dq{DType::kF32, SmallProblem::kBatch, SmallProblem::kRows,
                 SmallProblem::kHeads, SmallProblem::kDim};
  OwnedTensor dk{DType::kF32, SmallProblem::kBatch, SmallProblem::kColumns,
                 SmallProblem::kKvHeads, SmallProblem::kDim};
  OwnedTensor dv{DType::kF32, SmallProblem::kBatch, SmallProblem::kColumns,
                 SmallProblem::kKvHeads, SmallProblem::kValueDim};
  OwnedRows lse{SmallProblem::kBatch, SmallProblem::kHeads,
                SmallProblem::kRows};
  OwnedRows delta{SmallProblem::kBatch, SmallProblem::kHeads,
                  SmallProblem::kRows};
  const std::vector<int64_t> q_lens = {4, 5}, lens = {7, 5};
  KvSegment segment;
  BackwardArgs args;
};

}  // namespace

void ExpectBothAreAdded(const BackwardFn& backward) {
  Gradients before, alone, sum;
  before.Fill();
  sum.AddTo(before);
  ASSERT_TRUE(backward(alone.args).ok());
  ASSERT_TRUE(backward(sum.args).ok());
  for (size_t t = 0; t < 3; ++t) {
    const std::vector<double> own = alone.all()[t]->Values();
    const std::vector<double> had = before.all()[t]->Values();
    const std::vector<double> got = sum.all()[t]->Values();
    const double unit = RoundingUnit(DType::kF32);
    for (size_t i = 0; i < got.size(); ++i) {
      const double exact = own[i] + had[i];
      EXPECT_NEAR(got[i], exact,
                  1.01 * unit * (std::abs(exact) + std::abs(own[i])));
    }
  }
}

void ExpectGradientsAreKeptWhereNothingIsAdded(const BackwardFn& backward) {
  Gradients before, sum;
  before.Fill();
  sum.AddTo(before);
  ASSERT_TRUE(backward(sum.args).ok());
  const auto expect_kept = [](const OwnedTensor& got, const OwnedTensor& had,
                              int64_t b, int64_t token) {
    for (int64_t h = 0; h < got.heads(); ++h) {
      for (int64_t d = 0; d < got.dim(); ++d) {
        EXPECT_EQ(got.Get(b, token, h, d), had.Get(b, token, h, d));
      }
    }
  };
  expect_kept(sum.dq, before.dq, 0, 0);  // LSE is -inf
  expect_kept(sum.dq, before.dq, 1, 0);
  expect_kept(sum.dq, before.dq, 0, 4);  // past the lengths
  expect_kept(sum.dk, before.dk, 1, 5);
  expect_kept(sum.dv, before.dv, 1, 6);
}

void ExpectTheSameBitsInPlace(const BackwardFn& backward) {
  Gradients before, apart;
  before.Fill();
  apart.AddTo(before);
  ASSERT_TRUE(backward(apart.args).ok());
  before.AddTo(before);
  ASSERT_TRUE(backward(before.args).ok());
  for (size_t t = 0; t < 3; ++t) {
    EXPECT_EQ(before.all()[t]->bytes(), apart.all()[t]->bytes());
  }
}

void ExpectNothingIsAddedToWhatIsNotWanted(const BackwardFn& backward) {
  Gradients nothing;
  float one = 0;
  const ConstTensorView nowhere{&one, DType::kF32, 1 << 20, 1 << 20, 1 << 20};
  nothing.args.dq_before = nothing.segment.dk_before =
      nothing.segment.dv_before = nowhere;
  nothing.args.dq = nothing.segment.dk = {};
  nothing.segment.dv_before = {};
  EXPECT_TRUE(backward(nothing.args).ok());
}

}  // namespace attnd::testing
