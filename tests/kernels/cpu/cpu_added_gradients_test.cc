// Backward that adds to gradients that were there before, on the CPU.

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/chained_backward.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/run_group.h"
#include "tests/kernels/small_problem.h"
#include "tests/thinned.h"

namespace attnd::cpu {
namespace {

using testing::OnEveryTarget;
using testing::OwnedRows;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::SmallProblem;

class CpuAddedGradientsTest : public ::testing::Test {
 protected:
  absl::Status Backward(const BackwardArgs& args,
                        Algorithm algorithm = Algorithm::kAuto) {
    return testing::RunBackward(*stream_, {&args, 1}, {.algorithm = algorithm});
  }
  // In place where the seed is odd.
  ::testing::AssertionResult InLinks(const RandomProblem& problem, int links,
                                     uint32_t seed,
                                     Algorithm algorithm = Algorithm::kAuto) {
    return testing::CheckBackward(
        problem,
        [&](const BackwardArgs& args) {
          return testing::BackwardInLinks(
              args, links, seed, seed % 2 == 1, [&](const BackwardArgs& link) {
                return Backward(link, algorithm);
              });
        },
        // A sum of several terms is rounded more often.
        testing::Slack::kApproximations);
  }

  const std::unique_ptr<Backend> backend_ =
      CreateCpuBackend({.threads = 2}).value();
  const std::unique_ptr<Stream> stream_ = backend_->NewStream().value();
};

TEST_F(CpuAddedGradientsTest, LinksGiveTheWhole) {
  OnEveryTarget([&] {
    for (int seed = 0; seed < 100 / testing::kProblemStep; ++seed) {
      const RandomProblem problem(seed);
      ASSERT_TRUE(InLinks(problem, 4, seed)) << problem.Describe();
    }
  });
}

TEST_F(CpuAddedGradientsTest, LinksGiveTheWholeByThePapersAlgorithms) {
  for (const Algorithm algorithm :
       {Algorithm::kNaive, Algorithm::kFlashAttention1}) {
    for (int seed = 0; seed < 20 / testing::kProblemStep; ++seed) {
      const RandomProblem problem(seed);
      ASSERT_TRUE(InLinks(problem, 3, seed, algorithm)) << problem.Describe();
    }
  }
}

// dQ is put together by a task of its own where columns are shared out.
TEST_F(CpuAddedGradientsTest, ManyColumns) {
  ProblemOptions options;
  options.max_batch = options.max_kv_heads = 1;
  options.max_kv_len = 1500;
  options.max_dim = 64;
  OnEveryTarget([&] {
    for (int seed = 0; seed < 12 / testing::kProblemStep; ++seed) {
      const RandomProblem problem(seed, options);
      ASSERT_TRUE(InLinks(problem, 3, seed)) << problem.Describe();
    }
  });
}

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

TEST_F(CpuAddedGradientsTest, BothAreAdded) {
  Gradients before, alone, sum;
  before.Fill();
  sum.AddTo(before);
  ASSERT_TRUE(Backward(alone.args).ok());
  ASSERT_TRUE(Backward(sum.args).ok());
  for (size_t t = 0; t < 3; ++t) {
    const std::vector<double> own = alone.all()[t]->Values();
    const std::vector<double> had = before.all()[t]->Values();
    const std::vector<double> got = sum.all()[t]->Values();
    const double unit = testing::RoundingUnit(DType::kF32);
    for (size_t i = 0; i < got.size(); ++i) {
      const double exact = own[i] + had[i];
      EXPECT_NEAR(got[i], exact,
                  1.01 * unit * (std::abs(exact) + std::abs(own[i])));
    }
  }
}

TEST_F(CpuAddedGradientsTest, WhatIsAddedToIsWhatIsLeftWhereNothingIsAdded) {
  Gradients before, sum;
  before.Fill();
  sum.AddTo(before);
  ASSERT_TRUE(Backward(sum.args).ok());
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

TEST_F(CpuAddedGradientsTest, InPlaceHasTheSameBits) {
  Gradients before, apart;
  before.Fill();
  apart.AddTo(before);
  ASSERT_TRUE(Backward(apart.args).ok());
  before.AddTo(before);
  ASSERT_TRUE(Backward(before.args).ok());
  for (size_t t = 0; t < 3; ++t) {
    EXPECT_EQ(before.all()[t]->bytes(), apart.all()[t]->bytes());
  }
}

// Though it is named, nothing reads it.
TEST_F(CpuAddedGradientsTest, NothingIsAddedToWhatIsNotWanted) {
  Gradients nothing;
  float one = 0;
  const ConstTensorView nowhere{&one, DType::kF32, 1 << 20, 1 << 20, 1 << 20};
  nothing.args.dq_before = nothing.segment.dk_before =
      nothing.segment.dv_before = nowhere;
  nothing.args.dq = nothing.segment.dk = {};
  nothing.segment.dv_before = {};
  EXPECT_TRUE(Backward(nothing.args).ok());
}

}  // namespace
}  // namespace attnd::cpu
