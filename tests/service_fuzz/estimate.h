#ifndef ATTND_TESTS_SERVICE_FUZZ_ESTIMATE_H_
#define ATTND_TESTS_SERVICE_FUZZ_ESTIMATE_H_

// Attention in double, and of every element how far right f32 arithmetic may be
// from it: the errors of each step, carried through the steps after it. Unlike
// the plain computation's error this owes nothing to luck, which among
// thousands of small problems strikes often; and it holds where scores are so
// large that P hangs on their last bits.

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "tests/service_fuzz/scores.h"

namespace attnd::fuzz {

// `error` is beside the rounding of the output.
struct Estimate {
  std::vector<double> value, error;
};

struct ForwardEstimate {
  Estimate o;    // [batch, q_len, q_heads, value_dim]
  Estimate lse;  // [batch, q_heads, q_len]
  // Rows that see two columns or more: with one alone P is 1, and exact.
  int64_t rows = 0;
};
ForwardEstimate EstimateForward(const Problem& problem,
                                const Arithmetic& arithmetic);

// `args.lse` is forward's LSE over these columns and perhaps others, `own_lse`
// forward's over these alone. P is that of exact scores, times exp(own - lse):
// not exp(score - lse), as the error of a large LSE, which f32 cannot hold,
// would be taken for that of the gradients. So what is asked of a server is
// that its backward repeats the scores of its forward: P then errs by the
// roundings of LSE, and by no more.
struct BackwardEstimate {
  Estimate dq;  // [batch, q_len, q_heads, head_dim]
  Estimate dk;  // [batch, kv_len, kv_heads, head_dim]
  Estimate dv;  // [batch, kv_len, kv_heads, value_dim]
  // Whether dS leaves the range of the inputs' type.
  bool overflows = false;
  int64_t rows = 0;  // as forward's
};
BackwardEstimate EstimateBackward(const BackwardArgs& args,
                                  ConstRowView own_lse,
                                  const Arithmetic& arithmetic);

}  // namespace attnd::fuzz

#endif  // ATTND_TESTS_SERVICE_FUZZ_ESTIMATE_H_
