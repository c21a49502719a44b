#ifndef ATTND_TESTS_KERNELS_MAGNITUDES_H_
#define ATTND_TESTS_KERNELS_MAGNITUDES_H_

// What each output would be if nothing ever cancelled: the same sums over
// absolute values, times how much a relative error of the scores grows on its
// way. One f32 rounding of a magnitude is an error that no f32 computation, in
// whatever order it sums, can be blamed for.

#include "kernels/attention.h"
#include "kernels/reference/reference.h"

namespace attnd::testing {

reference::ExactForward ForwardMagnitudes(const Problem& problem);
reference::ExactBackward BackwardMagnitudes(const BackwardArgs& args);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_MAGNITUDES_H_
