#include "tests/kernels/accuracy.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/reference/reference.h"

namespace attnd::testing {
namespace {

// How many of the first problems pass when forward and backward run on what
// `change` makes of them.
struct Passed {
  int forward = 0, backward = 0;
};
template <typename Change>
Passed CountPassed(int problems, const ProblemOptions& options, Change change) {
  Passed passed;
  for (int seed = 0; seed < problems; ++seed) {
    const RandomProblem problem(seed, options);
    passed.forward +=
        static_cast<bool>(CheckForward(problem, [&](ForwardArgs args) {
          change(args.problem);
          return reference::Forward(args, Algorithm::kFlashAttention2);
        }));
    passed.backward +=
        static_cast<bool>(CheckBackward(problem, [&](BackwardArgs args) {
          change(args.problem);
          return reference::Backward(args, Algorithm::kFlashAttention2);
        }));
  }
  return passed;
}

ProblemOptions Plain(DType dtype) {
  ProblemOptions options;
  options.dtypes = {dtype};
  options.empty_sizes = options.lens = options.masks = options.bias =
      options.softcap = options.odd_scales = false;
  return options;
}

constexpr int kProblems = 20;

TEST(Accuracy, AcceptsTheRightAnswer) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Passed passed = CountPassed(kProblems, Plain(dtype), [](Problem&) {});
    EXPECT_EQ(passed.forward, kProblems);
    EXPECT_EQ(passed.backward, kProblems);
  }
}

TEST(Accuracy, RefusesAScaleOffByATenThousandthInF32) {
  const Passed passed = CountPassed(kProblems, Plain(DType::kF32),
                                    [](Problem& p) { p.scale *= 1.0001f; });
  // Where one key is all there is, the scale matters to nothing but LSE.
  EXPECT_LE(passed.forward, 2);
  EXPECT_LE(passed.backward, 2);
}

TEST(Accuracy, RefusesAScaleOffByATenthInBF16) {
  const Passed passed = CountPassed(kProblems, Plain(DType::kBF16),
                                    [](Problem& p) { p.scale *= 1.1f; });
  EXPECT_LE(passed.forward, 2);
  EXPECT_LE(passed.backward, 2);
}

TEST(Accuracy, RefusesAMaskOffByOne) {
  const Passed passed =
      CountPassed(kProblems, Plain(DType::kF16), [](Problem& p) {
        p.mask.right = p.mask.right < 0 ? KvLen(p, 0) - 2 : p.mask.right + 1;
        p.q_start = 0;
      });
  EXPECT_LE(passed.forward, 4);
}

TEST(Accuracy, RefusesOutputsThatWereNotWritten) {
  int passed = 0;
  for (int seed = 0; seed < kProblems; ++seed) {
    const RandomProblem problem(seed, Plain(DType::kF32));
    passed += static_cast<bool>(CheckForward(
        problem, [](const ForwardArgs&) { return absl::OkStatus(); }));
    passed += static_cast<bool>(CheckBackward(
        problem, [](const BackwardArgs&) { return absl::OkStatus(); }));
  }
  EXPECT_EQ(passed, 0);
}

TEST(IsAccurate, AllowsTwiceTheLargestErrorAndARounding) {
  const double exact[] = {1, 1, 1, 1};
  const double plain[] = {1.25, 1.25, 1.25, 1.25};
  EXPECT_TRUE(IsAccurate({1.25, 1.25, 1.25, 1.5}, plain, exact, DType::kF32));
  EXPECT_FALSE(IsAccurate({1.25, 1.25, 1.25, 1.51}, plain, exact, DType::kF32));
}

TEST(IsAccurate, AllowsOneAndAHalfTimesTheRms) {
  const double exact[] = {1, 1};
  const double plain[] = {1.25, 1.25};
  EXPECT_TRUE(IsAccurate({1.37, 1.37}, plain, exact, DType::kF32));
  EXPECT_FALSE(IsAccurate({1.38, 1.38}, plain, exact, DType::kF32));
}

TEST(IsAccurate, WantsInfinitiesEqualAndNoNan) {
  const double exact[] = {-INFINITY, 1};
  EXPECT_TRUE(IsAccurate({-INFINITY, 1}, exact, exact, DType::kF32));
  EXPECT_FALSE(IsAccurate({INFINITY, 1}, exact, exact, DType::kF32));
  EXPECT_FALSE(IsAccurate({0, 1}, exact, exact, DType::kF32));
  EXPECT_FALSE(IsAccurate({-INFINITY, NAN}, exact, exact, DType::kF32));
  EXPECT_FALSE(IsAccurate({-INFINITY, INFINITY}, exact, exact, DType::kF32));
}

}  // namespace
}  // namespace attnd::testing
