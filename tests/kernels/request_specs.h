#ifndef ATTND_TESTS_KERNELS_REQUEST_SPECS_H_
#define ATTND_TESTS_KERNELS_REQUEST_SPECS_H_

// Small valid requests, for tests to vary or spoil.

#include <initializer_list>

#include "kernels/request.h"

namespace attnd::testing {

inline TensorSpec Tensor(std::initializer_list<int64_t> shape,
                         DType dtype = DType::kBF16) {
  return {dtype, shape};
}

// BSHD: 2 sequences, 5 rows, 7 columns, 4 query
// and 2 K/V heads, dims 8 and 6.
inline RequestSpec ForwardSpec() {
  RequestSpec spec;
  spec.inputs[TensorId::kQ] = Tensor({2, 5, 4, 8});
  spec.inputs[TensorId::kK] = Tensor({2, 7, 2, 8});
  spec.inputs[TensorId::kV] = Tensor({2, 7, 2, 6});
  return spec;
}

inline RequestSpec BackwardSpec() {
  RequestSpec spec = ForwardSpec();
  spec.op = Op::kBackward;
  spec.inputs[TensorId::kDO] = Tensor({2, 5, 4, 6});
  spec.inputs[TensorId::kLse] = Tensor({2, 4, 5}, DType::kF32);
  spec.inputs[TensorId::kO] = Tensor({2, 5, 4, 6});
  return spec;
}

// Sequences of 3 and 2 rows, 1 and 6 columns.
inline RequestSpec PackedSpec() {
  RequestSpec spec;
  spec.layout = Layout::kPacked;
  spec.inputs[TensorId::kQ] = Tensor({5, 4, 8});
  spec.inputs[TensorId::kK] = Tensor({7, 2, 8});
  spec.inputs[TensorId::kV] = Tensor({7, 2, 6});
  spec.q_lens = {3, 2};
  spec.kv_lens = {1, 6};
  return spec;
}

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_REQUEST_SPECS_H_
