#ifndef ATTND_TESTS_KERNELS_CUDA_GRADIENT_PROBLEM_H_
#define ATTND_TESTS_KERNELS_CUDA_GRADIENT_PROBLEM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/random_problem.h"

namespace attnd::testing {

// Backward of one problem of a chosen shape, with a normal dO. Tests may change
// the problem before they solve and run it.
class GradientProblem {
 public:
  GradientProblem(uint32_t seed, const DenseShape& shape);
  GradientProblem(const GradientProblem&) = delete;
  GradientProblem& operator=(const GradientProblem&) = delete;

  // Makes LSE, O and delta what forward of the problem as it is now gives.
  void Solve();
  // Makes outputs of these types, poisoned; none of a type that is not given.
  void SetOutputs(std::optional<DType> dq, std::optional<DType> dk,
                  std::optional<DType> dv);
  void PoisonOutputs();
  // The problem as it is now with outputs of its own, poisoned ones in `other`.
  BackwardArgs Into(RandomProblem::BackwardOutputs& other) const;
  // The memory of all outputs.
  std::vector<std::vector<uint8_t>> Bits() const;
  ::testing::AssertionResult IsAccurate() const;

  Problem& problem() { return args.problem; }
  KvSegment& segment() { return out.segments.front(); }

  DenseProblem forward;  // has Q, K, V, bias, O and LSE
  OwnedTensor d_o;
  OwnedRows delta, d_lse;
  RandomProblem::BackwardOutputs out;  // of the inputs' type at first
  // Of the tensors above. O is given, delta and the gradient of LSE are not.
  BackwardArgs args;
};

// Tokens [first, first + len) of a segment of one sequence.
KvSegment Cut(const KvSegment& segment, int64_t first, int64_t len);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_GRADIENT_PROBLEM_H_
