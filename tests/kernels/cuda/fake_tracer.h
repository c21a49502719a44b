#ifndef ATTND_TESTS_KERNELS_CUDA_FAKE_TRACER_H_
#define ATTND_TESTS_KERNELS_CUDA_FAKE_TRACER_H_

// A tool that traces the program it is linked into, as NVTX lets one be: it
// writes down what ranges begin and end. For programs of one thread.

#include <string>
#include <vector>

namespace attnd::testing {

// What was seen since the last call: "domain: name amount" as a range begins,
// "-" as one ends.
std::vector<std::string> TakeTraced();

// How many domains and strings NVTX was told the names of.
int TracedNames();

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_FAKE_TRACER_H_
