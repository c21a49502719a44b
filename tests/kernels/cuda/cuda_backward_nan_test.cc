// NaN and infinity in backward on a GPU: they stay in their sequence and head,
// and are not lost.

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/gradient_problem.h"

namespace attnd {
namespace {

using testing::DenseShape;
using testing::DeviceTest;
using testing::GradientProblem;
using testing::OwnedTensor;

constexpr double kInf = std::numeric_limits<double>::infinity();

// Two sequences with four heads over two.
class CudaBackwardNanTest : public DeviceTest {
 protected:
  static constexpr int64_t kLen = 130;

  // What `spoil` does to K/V head 1 of sequence 0, or to q heads over it,
  // leaves the bits of all others as they are.
  template <class Spoil>
  void ExpectContained(const Spoil& spoil) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (int64_t dim : {40, 64, 128}) {
        SCOPED_TRACE(
            absl::StrCat("dtype ", static_cast<int>(dtype), " dim ", dim));
        const DenseShape shape = {.dtype = dtype,
                                  .batch = 2,
                                  .q_len = kLen,
                                  .kv_len = kLen,
                                  .q_heads = 4,
                                  .kv_heads = 2,
                                  .dim = dim};
        GradientProblem problem(3, shape), clean(3, shape);
        problem.Solve();
        clean.Solve();
        spoil(problem);
        Run(problem);
        Run(clean);
        const auto &got = problem.out, &expected = clean.out;
        ExpectOthersAlike(got.dq, expected.dq, 2);
        ExpectOthersAlike(got.dk[0], expected.dk[0], 1);
        ExpectOthersAlike(got.dv[0], expected.dv[0], 1);
        ASSERT_TRUE(HasNan(got.dq, 2) || HasNan(got.dk[0], 1) ||
                    HasNan(got.dv[0], 1))
            << "it is lost";
      }
    }
  }

 private:
  void Run(GradientProblem& problem) {
    problem.PoisonOutputs();
    const auto counts =
        device().Backward({&problem.args, 1}, {.deterministic = true});
    ASSERT_TRUE(counts.ok()) << counts.status();
  }

  // All but heads from `first` on of sequence 0.
  static void ExpectOthersAlike(const OwnedTensor& a, const OwnedTensor& b,
                                int64_t first) {
    for (int64_t s = 0; s < a.batch(); ++s) {
      for (int64_t h = 0; h < a.heads(); ++h) {
        if (s == 0 && h >= first) continue;
        for (int64_t i = 0; i < a.tokens(); ++i) {
          for (int64_t d = 0; d < a.dim(); ++d) {
            ASSERT_EQ(a.Get(s, i, h, d), b.Get(s, i, h, d))
                << "sequence " << s << " token " << i << " head " << h;
          }
        }
      }
    }
  }
  static bool HasNan(const OwnedTensor& t, int64_t head) {
    for (int64_t i = 0; i < t.tokens(); ++i) {
      for (int64_t d = 0; d < t.dim(); ++d) {
        if (std::isnan(t.Get(0, i, head, d))) return true;
      }
    }
    return false;
  }
};

TEST_F(CudaBackwardNanTest, InKeysStaysInItsSequenceAndHead) {
  ExpectContained(
      [](GradientProblem& p) { p.forward.k.Set(0, 7, 1, 3, std::nan("")); });
}
TEST_F(CudaBackwardNanTest, OrInfinityInValuesStaysThere) {
  ExpectContained([](GradientProblem& p) {
    p.forward.v.Set(0, 90, 1, 5, kInf);
    p.forward.v.Set(0, 91, 1, 5, -kInf);
  });
}
TEST_F(CudaBackwardNanTest, InQueriesStaysThere) {
  ExpectContained(
      [](GradientProblem& p) { p.forward.q.Set(0, 100, 2, 0, std::nan("")); });
}
TEST_F(CudaBackwardNanTest, InTheGradientOfOStaysThere) {
  ExpectContained(
      [](GradientProblem& p) { p.d_o.Set(0, 129, 2, 1, std::nan("")); });
}
TEST_F(CudaBackwardNanTest, InLseStaysThere) {
  ExpectContained(
      [](GradientProblem& p) { p.forward.lse.Set(0, 2, 3, std::nan("")); });
}

}  // namespace
}  // namespace attnd
