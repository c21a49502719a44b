#ifndef ATTND_TESTS_SERVICE_FUZZ_JUDGE_H_
#define ATTND_TESTS_SERVICE_FUZZ_JUDGE_H_

// Whether an answer is right, twice: every element is within what f32
// arithmetic may do to it (estimate.h), and where a problem is large and
// ordinary enough for statistics, errors are within the contract's multiples of
// the plain computation's (tests/kernels/accuracy.h), and have no trend.

#include <string>

#include "tests/service_fuzz/problem.h"
#include "tests/service_fuzz/scores.h"

namespace attnd::fuzz {

// What `device` owes a problem's forward or backward.
Arithmetic Owed(Op op, const FuzzProblem& problem, Arithmetic device);

// Empty: right. Else what is wrong: tensor, element, expected, got, bound.
using Verdict = std::string;

// Of forward: absent outputs are not judged.
Verdict JudgeForward(const FuzzProblem& problem, const Buffer& o,
                     const Buffer& lse, const Arithmetic& arithmetic);

// What backward was given, in the problem's layout.
struct Upstream {
  Buffer own_lse;  // what forward gave
  Buffer lse;      // the same, or of more columns
  Buffer o;        // or
  Buffer delta;
};
struct Gradients {
  Buffer dq, dk, dv;  // absent: not judged
};
Verdict JudgeBackward(const FuzzProblem& problem, const Upstream& upstream,
                      const Gradients& gradients, const Arithmetic& arithmetic);

}  // namespace attnd::fuzz

#endif  // ATTND_TESTS_SERVICE_FUZZ_JUDGE_H_
