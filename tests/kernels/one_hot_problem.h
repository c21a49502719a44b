#ifndef ATTND_TESTS_KERNELS_ONE_HOT_PROBLEM_H_
#define ATTND_TESTS_KERNELS_ONE_HOT_PROBLEM_H_

// Scores may be of any size, also out of f32's range, by their scale or by what
// they are products of: a problem whose results are exact then.

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "tests/kernels/owned_tensor.h"

namespace attnd::testing {

// What Q and K of a problem are, so that its products are huge.
struct HugeProducts {
  double size = 1;   // of Q and K: a power of two
  bool low = false;  // all scores are below 0, if the scale is above
};

// Those that take LSE from 8e5, above 2^20 in units of log2, to the end of what
// f16 has, or of f32's range and beyond: at 2^63 scores are out of it in those
// units, and the lowest are as products; at 2^64 so are the highest, and LSE is
// only what saturates as they do.
inline std::vector<HugeProducts> HugeProductsOf(DType dtype) {
  std::vector<HugeProducts> all;
  for (int exponent : {9, 10, 11, 12, 14, 30, 62, 63, 64}) {
    if (dtype == DType::kF16 && exponent > 14) break;
    const double size = std::ldexp(1.0, exponent);
    all.push_back({size, false});
    // Where the highest of negative scores saturate, so do all.
    if (exponent > 9 && exponent < 64) all.push_back({size, true});
  }
  return all;
}

// Every row has one key that wins by so much that P is exactly 1 there and 0
// elsewhere. All values are small multiples of 1/4, so O, dP and delta are
// exact too, hence dS, dQ and dK exactly 0 and dV exactly a sum of dO.
struct OneHotProblem {
  static constexpr int64_t kRows = 70, kTokens = 150, kHeads = 2;
  static constexpr int64_t kWinners = 3;

  OneHotProblem(DType dtype, float scale, int64_t head_dim = 24,
                const HugeProducts& huge = {})
      : dim(head_dim),
        q(dtype, 1, kRows, kHeads, dim),
        d_o(dtype, 1, kRows, kHeads, dim),
        k(dtype, 1, kTokens, 1, dim),
        v(dtype, 1, kTokens, 1, dim),
        o(DType::kF32, 1, kRows, kHeads, dim),
        dq(DType::kF32, 1, kRows, kHeads, dim),
        dk(DType::kF32, 1, kTokens, 1, dim),
        dv(DType::kF32, 1, kTokens, 1, dim),
        lse(1, kHeads, kRows) {
    const double sign = std::copysign(1.0, scale), size = huge.size;
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t d = 0; d < dim; ++d) {
          q.Set(0, i, h, d, d == Winner(i, h) ? 1.5 * size : 0);
          d_o.Set(0, i, h, d, static_cast<double>((i + 3 * h + 5 * d) % 7 - 3));
        }
      }
    }
    for (int64_t j = 0; j < kTokens; ++j) {
      for (int64_t d = 0; d < dim; ++d) {
        // Against 3e38: +-1.1e38, but a winner's own is out of range.
        const double other = d < kWinners ? (j + d) % 2 * 0.5 - 0.25 : 1;
        const bool winner = j % (kTokens / kWinners) == 0;
        const double high =
            winner ? (d == j / (kTokens / kWinners) ? 2 * sign : 0) : other;
        k.Set(0, j, 0, d, size * (huge.low ? high - 2.5 : high));
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
    forward.problem.head_dim = forward.problem.value_dim = dim;
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
        for (int64_t d = 0; d < dim; ++d) {
          ASSERT_EQ(o.Get(0, i, h, d), v.Get(0, Key(i, h), 0, d));
        }
      }
    }
  }

  // Asserts that no score has a gradient, and each winner those of its rows.
  void ExpectBackward() const {
    for (double x : dq.Values()) ASSERT_EQ(x, 0) << "dq";
    for (double x : dk.Values()) ASSERT_EQ(x, 0) << "dk";
    std::vector<double> sums(kTokens * dim, 0.0);
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t d = 0; d < dim; ++d) {
          sums[Key(i, h) * dim + d] += d_o.Get(0, i, h, d);
        }
      }
    }
    ASSERT_EQ(dv.Values(), sums);
  }

  const int64_t dim;
  OwnedTensor q, d_o, k, v, o, dq, dk, dv;
  OwnedRows lse;
  KvSegment segment;
  ForwardArgs forward;
  BackwardArgs backward;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_ONE_HOT_PROBLEM_H_
