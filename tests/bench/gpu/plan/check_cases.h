#ifndef ATTND_TESTS_BENCH_GPU_PLAN_CHECK_CASES_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_CHECK_CASES_H_

// What plan_bench --check measures: self-attention and decode, of which
// lengths, heads, batches, masks, places of inputs and operations meet each
// other.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/plan/plan_request.h"
#include "tests/bench/gpu/plan/cases.h"
#include "tests/bench/gpu/plan/host_tensors.h"

namespace attnd::bench {

struct CheckCase {
  int number = 0;  // in the whole grid, from 1 on
  Shape shape;
  Op op = Op::kForward;
  plan::InputsLie inputs = plan::InputsLie::kOnHost;
  double alone_seconds = 0;  // what one GPU takes, about

  std::string name() const;
  TensorSizes sizes() const;
};

// "host", "placed" or "ranges".
const char* InputsName(plan::InputsLie inputs);

// The cases with `only` in their names, whose lengths and windows are a
// `shrink`th of what they are. No case takes one GPU longer than 60 ms or so,
// or the host's memory more than 3.3 GB: long sequences have fewer query heads,
// or those of few sequences.
std::vector<CheckCase> CheckCases(const std::string& only, int64_t shrink);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_CHECK_CASES_H_
