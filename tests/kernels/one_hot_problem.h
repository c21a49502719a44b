#ifndef ATTND_TESTS_KERNELS_ONE_HOT_PROBLEM_H_
#define ATTND_TESTS_KERNELS_ONE_HOT_PROBLEM_H_

// Any finite scale is allowed, also one that takes scores out of f32's range:
// a problem whose results are exact then.

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "tests/kernels/owned_tensor.h"

namespace attnd::testing {

// Every row has one key that wins by so much that P is exactly 1 there and 0
// elsewhere. All values are small multiples of 1/4, so O, dP and delta are
// exact too, hence dS, dQ and dK exactly 0 and dV exactly a sum of dO.
struct OneHotProblem {
  static constexpr int64_t kRows = 70, kTokens = 150, kHeads = 2, kDim = 24;
  static constexpr int64_t kWinners = 3;

  OneHotProblem(DType dtype, float scale)
      : q(dtype, 1, kRows, kHeads, kDim),
        d_o(dtype, 1, kRows, kHeads, kDim),
        k(dtype, 1, kTokens, 1, kDim),
        v(dtype, 1, kTokens, 1, kDim),
        o(DType::kF32, 1, kRows, kHeads, kDim),
        dq(DType::kF32, 1, kRows, kHeads, kDim),
        dk(DType::kF32, 1, kTokens, 1, kDim),
        dv(DType::kF32, 1, kTokens, 1, kDim),
        lse(1, kHeads, kRows) {
    const double sign = std::copysign(1.0, scale);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t d = 0; d < kDim; ++d) {
          q.Set(0, i, h, d, d == Winner(i, h) ? 1.5 : 0);
          d_o.Set(0, i, h, d, static_cast<double>((i + 3 * h + 5 * d) % 7 - 3));
        }
      }
    }
    for (int64_t j = 0; j < kTokens; ++j) {
      for (int64_t d = 0; d < kDim; ++d) {
        // Against 3e38: +-1.1e38, but a winner's own is out of range.
        const double other = d < kWinners ? (j + d) % 2 * 0.5 - 0.25 : 1;
        const bool winner = j % (kTokens / kWinners) == 0;
        k.Set(0, j, 0, d,
              winner ? (d == j / (kTokens / kWinners) ? 2 * sign : 0) : other);
        v.Set(0, j, 0, d, static_cast<double>((2 * j + 3 * d) % 5 - 2) / 4);
      }
    }
    segment.k = std::as_const(k).view();
    segment.v = std::as_const(v).view();
    segment.len = kTokens;
    segment.dk = dk.view();
    segment.dv = dv.view();
    forward.problem.batch = 1;
    forward.problem.q_len = kRows;
    forward.problem.q_heads = kHeads;
    forward.problem.kv_heads = 1;
    forward.problem.head_dim = forward.problem.value_dim = kDim;
    forward.problem.q = std::as_const(q).view();
    forward.problem.kv = {&segment, 1};
    forward.problem.scale = scale;
    forward.o = o.view();
    forward.lse = lse.view();
    backward.problem = forward.problem;
    backward.d_o = std::as_const(d_o).view();
    backward.o = std::as_const(o).view();
    backward.lse = std::as_const(lse).view();
    backward.dq = dq.view();
  }
  OneHotProblem(const OneHotProblem&) = delete;
  OneHotProblem& operator=(const OneHotProblem&) = delete;

  static int64_t Winner(int64_t row, int64_t head) {
    return (row + head) % kWinners;
  }
  // The key that takes all.
  static int64_t Key(int64_t row, int64_t head) {
    return Winner(row, head) * (kTokens / kWinners);
  }

  // Asserts that O is the winners' values.
  void ExpectForward() const {
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < kRows; ++i) {
        ASSERT_TRUE(std::isfinite(lse.Get(0, h, i)));
        for (int64_t d = 0; d < kDim; ++d) {
          ASSERT_EQ(o.Get(0, i, h, d), v.Get(0, Key(i, h), 0, d));
        }
      }
    }
  }

  // Asserts that no score has a gradient, and each winner those of its rows.
  void ExpectBackward() const {
    for (double x : dq.Values()) ASSERT_EQ(x, 0) << "dq";
    for (double x : dk.Values()) ASSERT_EQ(x, 0) << "dk";
    std::vector<double> sums(kTokens * kDim, 0.0);
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t d = 0; d < kDim; ++d) {
          sums[Key(i, h) * kDim + d] += d_o.Get(0, i, h, d);
        }
      }
    }
    ASSERT_EQ(dv.Values(), sums);
  }

  OwnedTensor q, d_o, k, v, o, dq, dk, dv;
  OwnedRows lse;
  KvSegment segment;
  ForwardArgs forward;
  BackwardArgs backward;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_ONE_HOT_PROBLEM_H_
