// Backward finds P from the LSE that forward gave. Where scores are large, that
// needs its scores to be forward's bit by bit, whichever way forward went.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/run_group.h"
#include "tests/thinned.h"

namespace attnd {
namespace {

using testing::OnEveryTarget;
using testing::OwnedRows;
using testing::OwnedTensor;

struct Shape {
  int64_t q_len, kv_len, kv_heads, group, dim;
};

// Q and K of a deviation, and a dO whose row r is `upstream` at r: dV [token,
// r] is then that times P of row r and that token.
class OwnLse {
 public:
  OwnLse(DType dtype, const Shape& shape, double deviation, double upstream,
         uint32_t seed)
      : shape_(shape),
        upstream_(upstream),
        q_(dtype, 1, shape.q_len, heads(), shape.dim),
        k_(dtype, 1, shape.kv_len, shape.kv_heads, shape.dim),
        v_(dtype, 1, shape.kv_len, shape.kv_heads, kValueDim),
        d_o_(dtype, 1, shape.q_len, heads(), kValueDim),
        o_(DType::kF32, 1, shape.q_len, heads(), kValueDim),
        dq_(DType::kF32, 1, shape.q_len, heads(), shape.dim),
        dk_(DType::kF32, 1, shape.kv_len, shape.kv_heads, shape.dim),
        dv_(DType::kF32, 1, shape.kv_len, shape.kv_heads, kValueDim),
        lse_(1, heads(), shape.q_len) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, deviation);
    for (OwnedTensor* t : {&q_, &k_, &v_}) {
      for (int64_t i = 0; i < t->tokens(); ++i) {
        for (int64_t h = 0; h < t->heads(); ++h) {
          for (int64_t d = 0; d < t->dim(); ++d) {
            t->Set(0, i, h, d, normal(random));
          }
        }
      }
    }
    for (int64_t i = 0; i < shape.q_len; ++i) {
      for (int64_t h = 0; h < heads(); ++h) {
        for (int64_t d = 0; d < kValueDim; ++d) {
          d_o_.Set(0, i, h, d, d == RowOf(i, h) ? upstream : 0);
        }
      }
    }
  }

  void Run(Stream& stream) {
    segment_.k = std::as_const(k_).view();
    segment_.v = std::as_const(v_).view();
    segment_.len = shape_.kv_len;
    segment_.dk = dk_.view();
    segment_.dv = dv_.view();
    ForwardArgs forward;
    Problem& p = forward.problem;
    p.batch = 1;
    p.q_len = shape_.q_len;
    p.q_heads = heads();
    p.kv_heads = shape_.kv_heads;
    p.head_dim = shape_.dim;
    p.value_dim = kValueDim;
    p.q = std::as_const(q_).view();
    p.kv = {&segment_, 1};
    p.scale = static_cast<float>(1 / std::sqrt(shape_.dim));
    forward.o = o_.view();
    forward.lse = lse_.view();
    ASSERT_TRUE(testing::RunForward(stream, {&forward, 1}).ok());
    BackwardArgs backward;
    backward.problem = p;
    backward.d_o = std::as_const(d_o_).view();
    backward.o = std::as_const(o_).view();
    backward.lse = std::as_const(lse_).view();
    backward.dq = dq_.view();
    ASSERT_TRUE(testing::RunBackward(stream, {&backward, 1}).ok());
  }

  // Asserts that every row's P are in [0, 1] and sum up to 1, but for what LSE
  // and P lose as they are rounded.
  void ExpectRowsSumToOne() const {
    const double rounding = q_.dtype() == DType::kBF16 ? 0x1p-8 : 0x1p-20;
    for (int64_t i = 0; i < shape_.q_len; ++i) {
      for (int64_t h = 0; h < heads(); ++h) {
        if (RowOf(i, h) >= kValueDim) continue;
        const float lse = static_cast<float>(lse_.Get(0, h, i));
        ASSERT_TRUE(std::isfinite(lse));
        double sum = 0;
        for (int64_t j = 0; j < shape_.kv_len; ++j) {
          const double p =
              dv_.Get(0, j, h / shape_.group, RowOf(i, h)) / upstream_;
          ASSERT_GE(p, 0);
          ASSERT_LE(p, 1);
          sum += p;
        }
        const double half_ulp =
            (std::nextafter(std::abs(lse), HUGE_VALF) - std::abs(lse)) / 2;
        // Beyond that several scores are as likely as not to be equal to LSE.
        const double off = std::expm1(std::min(half_ulp, 1.0)) + rounding;
        ASSERT_NEAR(sum, 1, off) << "row " << i << " head " << h;
      }
    }
    for (const OwnedTensor* t : {&dq_, &dk_, &dv_}) {
      for (double x : t->Values()) ASSERT_TRUE(std::isfinite(x));
    }
  }

 private:
  static constexpr int64_t kValueDim = 64;

  int64_t heads() const { return shape_.kv_heads * shape_.group; }
  // Among the rows that share a kv head, from the last one on.
  int64_t RowOf(int64_t i, int64_t head) const {
    return (head % shape_.group + 1) * shape_.q_len - 1 - i;
  }

  const Shape shape_;
  const double upstream_;
  OwnedTensor q_, k_, v_, d_o_, o_, dq_, dk_, dv_;
  OwnedRows lse_;
  KvSegment segment_;
};

TEST(CpuAgreementTest, BackwardFindsTheScoresThatForwardFound) {
  const auto backend = CreateCpuBackend({.threads = 2}).value();
  const auto stream = backend->NewStream().value();
  std::vector<Shape> shapes = {{3, 300, 1, 2, 128},   // in place
                               {1, 700, 2, 1, 64},    // columns shared out
                               {60, 300, 1, 1, 128},  // packed
                               // A last block of one row: 11 of 192 before it.
                               {2113, 40, 6, 1, 16}};
  std::mt19937 random(1);
  const auto draw = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int i = 0; i < 40 / testing::kProblemStep; ++i) {
    // Dims of whole vectors, and a few others.
    const int64_t dim = i % 5 == 0 ? draw(1, 130) : 16 * draw(1, 9);
    shapes.push_back({draw(1, 9), draw(1, 400), draw(1, 2), draw(1, 4), dim});
  }
  uint32_t seed = 0;
  for (const Shape& shape : shapes) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (double deviation : {300.0, 1e4}) {
        // So small a dO needs other words than Q, K and V.
        for (double upstream : {1.0, 0x1p-60}) {
          if (upstream != 1 && dtype != DType::kBF16) continue;
          SCOPED_TRACE(absl::StrCat(
              shape.q_len, " x ", shape.kv_len, ", heads ", shape.kv_heads,
              " x ", shape.group, ", dim ", shape.dim, ", type ",
              static_cast<int>(dtype), ", deviation ", deviation));
          OwnLse problem(dtype, shape, deviation, upstream, ++seed);
          OnEveryTarget([&] {
            problem.Run(*stream);
            problem.ExpectRowsSumToOne();
          });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnd
