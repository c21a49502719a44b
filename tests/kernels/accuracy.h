#ifndef ATTND_TESTS_KERNELS_ACCURACY_H_
#define ATTND_TESTS_KERNELS_ACCURACY_H_

// How far a result is from float64, judged by how far the plain computation is:
// the naive algorithm in f32 that rounds P (and dS) to the inputs' type.

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "tests/kernels/random_problem.h"

namespace attnd::testing {

// Half the distance between neighbours, relative to the larger.
double RoundingUnit(DType dtype);

// Whether `got` is as near to `exact` as the contract asks:
//   max |got - exact| <= 2 max |plain - exact| + one rounding to `dtype`
//   rms (got - exact) <= 1.5 rms (plain - exact) + one rounding
// `slack`, if given, adds slack[i] to what element i may be off. With few
// elements plain may be near by luck; slack is then the size of f32's roundings
// on the way (see magnitudes.h). Infinities must be equal, NaN never passes.
// The message names the worst element.
::testing::AssertionResult IsAccurate(absl::Span<const double> got,
                                      absl::Span<const double> plain,
                                      absl::Span<const double> exact,
                                      DType dtype,
                                      absl::Span<const double> slack = {});

// Runs a problem and checks all that the contract says of its outputs:
// accuracy, exact zeros and -inf where nothing attends, nothing written between
// rows.
using ForwardFn = std::function<absl::Status(const ForwardArgs&)>;
using BackwardFn = std::function<absl::Status(const BackwardArgs&)>;

// How many f32 roundings of its magnitude an element may be off beside that.
enum class Slack {
  kRoundings,  // one: whatever the order of the sums
  // Four: a GPU's special functions give 2^x within 2^-22, which is four of
  // f32's roundings, and its tensor cores cut sums off where f32 rounds them.
  kApproximations,
  kNone,
};
::testing::AssertionResult CheckForward(const RandomProblem& problem,
                                        const ForwardFn& run,
                                        Slack slack = Slack::kRoundings);
::testing::AssertionResult CheckBackward(const RandomProblem& problem,
                                         const BackwardFn& run,
                                         Slack slack = Slack::kRoundings);

// The same for results of any problem, wherever they were computed: `o` is
// [batch, q_len, q_heads, value_dim], rounded to `o_dtype`; `lse` is [batch,
// q_heads, q_len]. What is empty is not checked.
::testing::AssertionResult CheckResults(const Problem& problem, DType o_dtype,
                                        absl::Span<const double> o,
                                        absl::Span<const double> lse,
                                        Slack slack = Slack::kRoundings);

// The same for gradients: `got` has what a run of `args` gave, or would have
// given in its place. Rows of LSE -inf, and what lies past a sequence's
// lengths, must be exactly 0. What is absent is not checked.
::testing::AssertionResult CheckGradients(
    const BackwardArgs& args, const RandomProblem::BackwardOutputs& got,
    Slack slack = Slack::kRoundings);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_ACCURACY_H_
