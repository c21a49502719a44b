// Any finite scale is allowed, also one that takes scores out of f32's range.

#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/owned_tensor.h"

namespace attnd {
namespace {

using testing::OnEveryTarget;
using testing::OwnedRows;
using testing::OwnedTensor;

constexpr int64_t kRows = 70, kTokens = 150, kHeads = 2, kDim = 24;
constexpr int64_t kWinners = 3;

// Every row has one key that wins by so much that P is exactly 1 there and 0
// elsewhere. All values are small multiples of 1/4, so O, dP and delta are
// exact too, hence dS, dQ and dK exactly 0 and dV exactly a sum of dO.
struct OneHotProblem {
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

  static int64_t Winner(int64_t row, int64_t head) {
    return (row + head) % kWinners;
  }

  OwnedTensor q, d_o, k, v, o, dq, dk, dv;
  OwnedRows lse;
  KvSegment segment;
  ForwardArgs forward;
  BackwardArgs backward;
};

void ExpectZeros(const OwnedTensor& t, const char* name) {
  for (double x : t.Values()) ASSERT_EQ(x, 0) << name;
}

void ExpectOneHot(const OneHotProblem& problem) {
  std::vector<double> dv(kTokens * kDim, 0.0);
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t i = 0; i < kRows; ++i) {
      const int64_t key = OneHotProblem::Winner(i, h) * (kTokens / kWinners);
      ASSERT_TRUE(std::isfinite(problem.lse.Get(0, h, i)));
      for (int64_t d = 0; d < kDim; ++d) {
        ASSERT_EQ(problem.o.Get(0, i, h, d), problem.v.Get(0, key, 0, d));
        dv[key * kDim + d] += problem.d_o.Get(0, i, h, d);
      }
    }
  }
  ExpectZeros(problem.dq, "dq");
  ExpectZeros(problem.dk, "dk");
  ASSERT_EQ(problem.dv.Values(), dv);
}

TEST(CpuScaleTest, HugeScalesGiveExactOneHotResults) {
  const auto backend = CreateCpuBackend({.threads = 2}).value();
  const auto stream = backend->NewStream().value();
  const auto run = [&](DType dtype, float scale, Algorithm algorithm) {
    OneHotProblem problem(dtype, scale);
    const GroupOptions options{.algorithm = algorithm};
    ASSERT_TRUE(stream->Forward({&problem.forward, 1}, options).ok());
    ASSERT_TRUE(stream->Backward({&problem.backward, 1}, options).ok());
    ExpectOneHot(problem);
  };
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (float scale : {1e30f, -1e30f, 3e38f, -3e38f}) {
      SCOPED_TRACE(scale);
      OnEveryTarget([&] { run(dtype, scale, Algorithm::kAuto); });
      run(dtype, scale, Algorithm::kNaive);
      run(dtype, scale, Algorithm::kFlashAttention2);
    }
  }
}

}  // namespace
}  // namespace attnd
