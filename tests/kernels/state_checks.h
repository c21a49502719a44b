#ifndef ATTND_TESTS_KERNELS_STATE_CHECKS_H_
#define ATTND_TESTS_KERNELS_STATE_CHECKS_H_

// What a forward that merges (ForwardArgs::before) must give, whatever runs it.

#include "tests/kernels/accuracy.h"

namespace attnd::testing {

void ExpectOnlySeenStatesAreRead(const ForwardFn& forward);
void ExpectRowsThatSeeNothingKeepTheirState(const ForwardFn& forward);
// Where LSE is too large for a logarithm to show in it, equal ones still count
// as much as each other, and a NaN stays in its row.
void ExpectRightWeightsWhateverTheSizeOfLse(const ForwardFn& forward);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_STATE_CHECKS_H_
