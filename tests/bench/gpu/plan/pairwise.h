#ifndef ATTND_TESTS_BENCH_GPU_PLAN_PAIRWISE_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_PAIRWISE_H_

#include <vector>

#include "absl/functional/function_ref.h"

namespace attnd::bench {

// A value of each dimension.
using Choice = std::vector<int>;

// `count` of the choices that are allowed, or all of these, with each pair of
// two dimensions' values in as many of them as can be: dimension i has values 0
// to sizes[i] - 1. Cohen et al., "The AETG System", but that every choice is
// looked at. The same arguments give the same ones.
std::vector<Choice> Pairwise(const std::vector<int>& sizes, int count,
                             absl::FunctionRef<bool(const Choice&)> allows);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_PAIRWISE_H_
