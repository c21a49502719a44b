#ifndef ATTND_TESTS_KERNELS_CUDA_CAPI_PROBLEM_H_
#define ATTND_TESTS_KERNELS_CUDA_CAPI_PROBLEM_H_

// Problems in the terms of the C interface.

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/capi/capi.h"

namespace attnd::testing {

template <class View>
AttndTensor ToC(const View& t) {
  return {const_cast<void*>(static_cast<const void*>(t.data)), t.batch_stride,
          t.token_stride, t.head_stride};
}

// Of one segment, whose sequences have all its lengths.
inline AttndForwardProblem ToC(const ForwardArgs& args) {
  const Problem& p = args.problem;
  return {.batch = p.batch,
          .q_len = p.q_len,
          .kv_len = p.kv[0].len,
          .q_heads = p.q_heads,
          .kv_heads = p.kv_heads,
          .head_dim = p.head_dim,
          .value_dim = p.value_dim,
          .q = ToC(p.q),
          .k = ToC(p.kv[0].k),
          .v = ToC(p.kv[0].v),
          .o = ToC(args.o),
          .lse = args.lse.data,
          .left = p.mask.left,
          .right = p.mask.right,
          .causal = p.mask.causal,
          .dtype = static_cast<int32_t>(p.q.dtype),
          .scale = p.scale};
}

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_CAPI_PROBLEM_H_
