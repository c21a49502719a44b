#ifndef ATTND_TESTS_SERVICE_FUZZ_SHAPE_H_
#define ATTND_TESTS_SERVICE_FUZZ_SHAPE_H_

#include "tests/service_fuzz/generate.h"
#include "tests/service_fuzz/problem.h"
#include "tests/service_fuzz/random.h"

namespace attnd::fuzz {

// Draws layout, sizes, lengths, positions and mask.
void DrawShape(FuzzProblem& problem, const Limits& limits, Random& random);

}  // namespace attnd::fuzz

#endif  // ATTND_TESTS_SERVICE_FUZZ_SHAPE_H_
