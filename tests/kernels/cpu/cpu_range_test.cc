// The ends of what numbers there are: products out of f32's range, bf16's
// subnormals, softcaps that nothing gets through. Whatever the processor and
// the algorithm, finite inputs have finite results, and small ones count.

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/run_group.h"

namespace attnd {
namespace {

using testing::OnEveryTarget;
using testing::OwnedRows;
using testing::OwnedTensor;

// Two q heads of one kv head; Q, K, V and dO by token and element.
struct EdgeProblem {
  using Fill = std::function<double(int64_t token, int64_t d)>;
  static constexpr int64_t kHeads = 2;

  EdgeProblem(DType dtype, int64_t q_len, int64_t kv_len, int64_t dim,
              float scale, Fill of_q, Fill of_k, Fill of_v, Fill of_d_o)
      : q(dtype, 1, q_len, kHeads, dim),
        k(dtype, 1, kv_len, 1, dim),
        v(dtype, 1, kv_len, 1, dim),
        d_o(dtype, 1, q_len, kHeads, dim),
        o(DType::kF32, 1, q_len, kHeads, dim),
        dq(DType::kF32, 1, q_len, kHeads, dim),
        dk(DType::kF32, 1, kv_len, 1, dim),
        dv(DType::kF32, 1, kv_len, 1, dim),
        lse(1, kHeads, q_len) {
    Set(q, of_q);
    Set(k, of_k);
    Set(v, of_v);
    Set(d_o, of_d_o);
    segment.k = std::as_const(k).view();
    segment.v = std::as_const(v).view();
    segment.len = kv_len;
    segment.dk = dk.view();
    segment.dv = dv.view();
    Problem& p = forward.problem;
    p.batch = 1;
    p.q_len = q_len;
    p.q_heads = kHeads;
    p.kv_heads = 1;
    p.head_dim = p.value_dim = dim;
    p.q = std::as_const(q).view();
    p.kv = {&segment, 1};
    p.scale = scale;
    forward.o = o.view();
    forward.lse = lse.view();
    backward.problem = p;
    backward.d_o = std::as_const(d_o).view();
    backward.o = std::as_const(o).view();
    backward.lse = std::as_const(lse).view();
    backward.dq = dq.view();
  }
  EdgeProblem(const EdgeProblem&) = delete;
  EdgeProblem& operator=(const EdgeProblem&) = delete;

  static void Set(OwnedTensor& t, const Fill& fill) {
    for (int64_t i = 0; i < t.tokens(); ++i) {
      for (int64_t h = 0; h < t.heads(); ++h) {
        for (int64_t d = 0; d < t.dim(); ++d) t.Set(0, i, h, d, fill(i, d));
      }
    }
  }

  void Run(Stream& stream, Algorithm algorithm) {
    const GroupOptions options{.algorithm = algorithm};
    ASSERT_TRUE(testing::RunForward(stream, {&forward, 1}, options).ok());
    ASSERT_TRUE(testing::RunBackward(stream, {&backward, 1}, options).ok());
  }

  // Asserts that what Run gave is near float64, relative to a tensor's largest
  // element; gradients are those of the LSE and O that it gave.
  void ExpectExact(double tolerance, bool with_dq = true,
                   bool with_dk = true) const {
    const auto forward_exact = reference::OracleForward(forward.problem);
    const auto exact = reference::OracleBackward(backward);
    ExpectNear("o", o.Values(), forward_exact.o, tolerance);
    ExpectNear("lse", lse.Values(), forward_exact.lse, tolerance);
    // Sums of what mostly cancels.
    if (with_dq) ExpectNear("dq", dq.Values(), exact.dq, 8 * tolerance);
    if (with_dk) ExpectNear("dk", dk.Values(), exact.dk[0], 8 * tolerance);
    ExpectNear("dv", dv.Values(), exact.dv[0], tolerance);
  }
  static void ExpectNear(const char* name, const std::vector<double>& got,
                         const std::vector<double>& exact, double tolerance) {
    double most = 0;
    for (double x : exact) most = std::max(most, std::abs(x));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], exact[i], tolerance * most) << name << " " << i;
    }
  }

  OwnedTensor q, k, v, d_o, o, dq, dk, dv;
  OwnedRows lse;
  KvSegment segment;
  ForwardArgs forward;
  BackwardArgs backward;
};

class CpuRangeTest : public ::testing::Test {
 protected:
  // Runs `test` by the fast kernels on every target, and by each algorithm.
  template <class Test>
  void ByAll(Test test) {
    OnEveryTarget([&] { test(*stream_, Algorithm::kAuto); });
    for (Algorithm algorithm :
         {Algorithm::kNaive, Algorithm::kOnlineSoftmax,
          Algorithm::kFlashAttention1, Algorithm::kFlashAttention2}) {
      SCOPED_TRACE(static_cast<int>(algorithm));
      test(*stream_, algorithm);
    }
  }

  const std::unique_ptr<Backend> backend_ =
      CreateCpuBackend({.threads = 2}).value();
  const std::unique_ptr<Stream> stream_ = backend_->NewStream().value();
};

// Rows of few queries are read in place, those of dim 20 never.
constexpr std::pair<int64_t, int64_t> kRowsAndDims[] = {
    {1, 64}, {3, 32}, {20, 64}, {2, 20}, {70, 20}};

double SmallValue(int64_t token, int64_t d) {
  return static_cast<double>((2 * token + 3 * d) % 5 - 2) / 4;
}
// Whose sums over tokens do not cancel.
double UnevenValue(int64_t token, int64_t d) {
  return SmallValue(token, d + token * token) + 0.25;
}

TEST_F(CpuRangeTest, ProductsOutOfRangeAreTheLargestNumbersWhateverTheScale) {
  for (const auto& rows_and_dim : kRowsAndDims) {
    const int64_t rows = rows_and_dim.first, dim = rows_and_dim.second;
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (float scale : {1e-35f, -1e-35f, 1.0f, 1e30f}) {
        const double sign = scale < 0 ? -1 : 1;
        // Of token 7 scores are above what there is, of the others below.
        EdgeProblem problem(
            dtype, rows, 90, dim, scale,
            [](int64_t, int64_t d) { return d == 0 ? 8e19 : 0; },
            [&](int64_t t, int64_t d) {
              return d == 0 ? sign * (t == 7 ? 8e19 : -8e19) : 1;
            },
            SmallValue, SmallValue);
        ByAll([&](Stream& stream, Algorithm algorithm) {
          problem.Run(stream, algorithm);
          for (double x : problem.lse.Values()) ASSERT_EQ(x, FLT_MAX);
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t d = 0; d < dim; ++d) {
              ASSERT_EQ(problem.o.Get(0, i, 1, d), SmallValue(7, d));
            }
          }
          for (double x : problem.dq.Values()) ASSERT_EQ(x, 0);
          for (double x : problem.dk.Values()) ASSERT_EQ(x, 0);
          for (int64_t d = 0; d < dim; ++d) {
            double sum = 0;
            for (int64_t i = 0; i < rows; ++i) sum += 2 * SmallValue(i, d);
            ASSERT_EQ(problem.dv.Get(0, 7, 0, d), sum);
            ASSERT_EQ(problem.dv.Get(0, 8, 0, d), 0);
          }
        });
      }
    }
  }
}

TEST_F(CpuRangeTest, ARowOfTheLowestScoresIsTheirMean) {
  EdgeProblem problem(
      DType::kF32, 3, 4, 16, 1e-35f,
      [](int64_t, int64_t d) { return d == 0 ? 8e19 : 0; },
      [](int64_t, int64_t) { return -8e19; },
      [](int64_t token, int64_t) { return static_cast<double>(token); },
      SmallValue);
  ByAll([&](Stream& stream, Algorithm algorithm) {
    problem.Run(stream, algorithm);
    for (double x : problem.lse.Values()) ASSERT_EQ(x, -FLT_MAX);
    for (double x : problem.o.Values()) ASSERT_EQ(x, 1.5);
  });
}

TEST_F(CpuRangeTest, PartsOutOfRangeWithBothSignsReachTheirRowAlone) {
  for (auto [rows, dim] : kRowsAndDims) {
    if (rows == 1) continue;
    EdgeProblem problem(
        DType::kF32, rows, 90, dim, 1e-35f,
        [](int64_t row, int64_t d) { return row == 1 && d < 2 ? 8e19 : 0; },
        [](int64_t, int64_t d) { return d == 1 ? -8e19 : 8e19; }, SmallValue,
        SmallValue);
    ByAll([&, rows = rows](Stream& stream, Algorithm algorithm) {
      problem.Run(stream, algorithm);
      for (int64_t i = 0; i < rows; ++i) {
        if (i == 1) continue;
        ASSERT_TRUE(std::isfinite(problem.lse.Get(0, 0, i))) << i;
        for (int64_t d = 0; d < problem.o.dim(); ++d) {
          ASSERT_TRUE(std::isfinite(problem.o.Get(0, i, 0, d))) << i;
        }
      }
    });
  }
}

TEST_F(CpuRangeTest, SubnormalQueriesAndKeysCount) {
  const auto sign = [](int64_t i) { return i % 2 == 0 ? 1 : -1; };
  for (auto [rows, dim] : kRowsAndDims) {
    for (bool tiny_q : {true, false}) {
      // Scores up to 7: q k is 2^-128 times up to 14.
      const auto tiny = [&](int64_t i, int64_t d) {
        return d == 0 ? sign(i) * 0x1p-128 : 0;
      };
      const auto plain = [](int64_t i, int64_t d) {
        return d == 0 ? static_cast<double>(i % 29 - 14) : 1;
      };
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        EdgeProblem problem(
            dtype, rows, 90, dim, 0x1p127f,
            tiny_q ? EdgeProblem::Fill(tiny) : plain,
            tiny_q ? EdgeProblem::Fill(plain) : tiny, UnevenValue,
            [](int64_t i, int64_t d) { return 0x1p-20 * UnevenValue(i, d); });
        ByAll([&](Stream& stream, Algorithm algorithm) {
          problem.Run(stream, algorithm);
          // The other is the scale times what f32 does not hold. Naive rounds
          // dS to bf16, and most of it cancels.
          const bool fine = algorithm != Algorithm::kNaive;
          problem.ExpectExact(0x1p-7, fine && tiny_q, fine && !tiny_q);
        });
      }
    }
  }
}

TEST_F(CpuRangeTest, SubnormalValuesAndUpstreamGradientsCount) {
  for (auto [rows, dim] : kRowsAndDims) {
    for (auto [size_v, size_d_o] :
         {std::pair(0x1p-129, 1.0), std::pair(1.0, 0x1p-129)}) {
      EdgeProblem problem(
          DType::kBF16, rows, 90, dim, 1.0f, UnevenValue, SmallValue,
          [size = size_v](int64_t i, int64_t d) {
            return size * UnevenValue(i, d);
          },
          [size = size_d_o](int64_t i, int64_t d) {
            return size * UnevenValue(i, d + 1);
          });
      ByAll([&](Stream& stream, Algorithm algorithm) {
        // Rounds dS to bf16, whose subnormals are coarse.
        if (algorithm == Algorithm::kNaive) return;
        problem.Run(stream, algorithm);
        problem.ExpectExact(0x1p-6);
      });
    }
  }
}

// Beside a sequence whose numbers are tiny, one gives the bits that it gives
// alone.
TEST_F(CpuRangeTest, SubnormalNumbersReachNoOtherProblemOfAGroup) {
  const auto make = [](double size) {
    return std::make_unique<EdgeProblem>(
        DType::kBF16, 70, 90, 64, 1.0f, UnevenValue, SmallValue,
        [size](int64_t i, int64_t d) { return size * UnevenValue(i, d); },
        UnevenValue);
  };
  const auto alone = make(1), beside = make(1), tiny = make(0x1p-130);
  OnEveryTarget([&] {
    alone->Run(*stream_, Algorithm::kAuto);
    const ForwardArgs forward[] = {tiny->forward, beside->forward};
    const BackwardArgs backward[] = {tiny->backward, beside->backward};
    ASSERT_TRUE(testing::RunForward(*stream_, forward).ok());
    ASSERT_TRUE(testing::RunBackward(*stream_, backward).ok());
    EXPECT_EQ(alone->o.bytes(), beside->o.bytes());
    EXPECT_EQ(alone->lse.bytes(), beside->lse.bytes());
    EXPECT_EQ(alone->dq.bytes(), beside->dq.bytes());
    EXPECT_EQ(alone->dk.bytes(), beside->dk.bytes());
    EXPECT_EQ(alone->dv.bytes(), beside->dv.bytes());
  });
}

// A scale may bring back what is small.
TEST_F(CpuRangeTest, LargeScalesFindWhatIsLeftOfSmallGradients) {
  for (auto [rows, dim] : kRowsAndDims) {
    EdgeProblem problem(
        DType::kBF16, rows, 90, dim, 0x1p100f,
        [](int64_t i, int64_t d) { return 0x1p-50 * UnevenValue(i, d); },
        [](int64_t i, int64_t d) { return 0x1p-50 * SmallValue(i, d); },
        [](int64_t i, int64_t d) { return 0x1p-40 * UnevenValue(i, d); },
        [](int64_t i, int64_t d) { return 0x1p-40 * UnevenValue(i, d + 1); });
    ByAll([&](Stream& stream, Algorithm algorithm) {
      problem.Run(stream, algorithm);
      problem.ExpectExact(0x1p-6);
    });
  }
}

TEST_F(CpuRangeTest, NothingGetsThroughASaturatedSoftcap) {
  for (auto [rows, dim] : kRowsAndDims) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (float scale : {1e30f, 3e38f}) {
        for (float cap : {1.0f, 1e-30f, 1e-40f}) {
          EdgeProblem problem(
              dtype, rows, 90, dim, scale,
              [](int64_t i, int64_t d) { return SmallValue(i, d) + 1; },
              [](int64_t i, int64_t d) { return SmallValue(i, d) + 1; },
              SmallValue,
              [](int64_t i, int64_t d) { return SmallValue(i, d + 1); });
          problem.forward.problem.softcap = cap;
          problem.backward.problem.softcap = cap;
          ByAll([&](Stream& stream, Algorithm algorithm) {
            problem.Run(stream, algorithm);
            for (double x : problem.dq.Values()) ASSERT_EQ(x, 0);
            for (double x : problem.dk.Values()) ASSERT_EQ(x, 0);
          });
          const auto exact = reference::OracleBackward(problem.backward);
          for (double x : exact.dq) ASSERT_EQ(x, 0);
        }
      }
    }
  }
}

TEST_F(CpuRangeTest, SoftcapsSlopeIsRightDownToWhatF32Holds) {
  // x / c goes from 0 to 46 by the token; 1e37 brings back a slope of 1e-38.
  EdgeProblem problem(
      DType::kF32, 3, 47, 16, 1e37f,
      [](int64_t, int64_t d) { return d == 0 ? 1 : 0; },
      [](int64_t t, int64_t d) { return d == 0 ? 1e-37 * t : 0; }, SmallValue,
      [](int64_t i, int64_t d) { return SmallValue(i, d + 1); });
  problem.forward.problem.softcap = 1.0f;
  problem.backward.problem.softcap = 1.0f;
  ByAll([&](Stream& stream, Algorithm algorithm) {
    problem.Run(stream, algorithm);
    const auto exact = reference::OracleBackward(problem.backward);
    // Of each token for itself.
    for (int64_t t = 0; t < 47; ++t) {
      const double want = exact.dk[0][t * 16];
      ASSERT_NEAR(problem.dk.Get(0, t, 0, 0), want, 1e-3 * std::abs(want)) << t;
    }
  });
}

}  // namespace
}  // namespace attnd
