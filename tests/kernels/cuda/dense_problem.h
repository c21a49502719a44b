#ifndef ATTND_TESTS_KERNELS_CUDA_DENSE_PROBLEM_H_
#define ATTND_TESTS_KERNELS_CUDA_DENSE_PROBLEM_H_

#include <cstdint>

#include "kernels/attention.h"
#include "tests/kernels/owned_tensor.h"

namespace attnd::testing {

struct DenseShape {
  DType dtype = DType::kBF16;
  int64_t batch = 1;
  int64_t q_len = 1;
  int64_t kv_len = 1;
  int64_t q_heads = 1;
  int64_t kv_heads = 1;
  int64_t dim = 64;
  Mask mask = {};
};

// One problem of a chosen shape, with normal inputs, the default scale and one
// contiguous segment. Tests may change the problem before they run it.
class DenseProblem {
 public:
  DenseProblem(uint32_t seed, const DenseShape& shape);
  DenseProblem(const DenseProblem&) = delete;
  DenseProblem& operator=(const DenseProblem&) = delete;

  // Adds a bias [q_len, kv_len] for all sequences and heads: f32, 0.
  void AddBias();

  ForwardArgs args;  // of the tensors below
  OwnedTensor q, k, v, bias, o;
  OwnedRows lse;

 private:
  KvSegment segment_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_DENSE_PROBLEM_H_
