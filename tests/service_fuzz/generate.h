#ifndef ATTND_TESTS_SERVICE_FUZZ_GENERATE_H_
#define ATTND_TESTS_SERVICE_FUZZ_GENERATE_H_

// Random problems over the whole contract.

#include <cstdint>

#include "tests/service_fuzz/problem.h"

namespace attnd::fuzz {

// What |q.k|, |scale * q.k| and every product of backward stay below: f32's
// range, less what sums need.
inline constexpr double kMostProduct = 1e37;
// What |V| stays below: kernels sum P V before they divide by P's sum.
inline constexpr double kMostValue = 1e33;

struct Limits {
  int64_t max_tokens = 4096;  // of a sequence
  // Multiply-adds of forward of most problems, and of one in 25.
  int64_t usual_work = 1'000'000, most_work = 20'000'000;
  // For a server with a team: every other problem names a plan. Otherwise the
  // same.
  bool plans = false;
};

// The same seed, index and limits always give the same problem. LSE and O of
// backward come from whoever computes forward.
FuzzProblem Generate(uint64_t seed, uint64_t index, const Limits& limits = {});

}  // namespace attnd::fuzz

#endif  // ATTND_TESTS_SERVICE_FUZZ_GENERATE_H_
