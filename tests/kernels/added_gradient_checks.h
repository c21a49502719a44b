#ifndef ATTND_TESTS_KERNELS_ADDED_GRADIENT_CHECKS_H_
#define ATTND_TESTS_KERNELS_ADDED_GRADIENT_CHECKS_H_

// What a backward that adds to gradients that were there before (BackwardArgs)
// must give, whatever runs it.

#include "tests/kernels/accuracy.h"

namespace attnd::testing {

void ExpectBothAreAdded(const BackwardFn& backward);
void ExpectGradientsAreKeptWhereNothingIsAdded(const BackwardFn& backward);
void ExpectTheSameBitsInPlace(const BackwardFn& backward);
// Though it is named, nothing reads it.
void ExpectNothingIsAddedToWhatIsNotWanted(const BackwardFn& backward);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_ADDED_GRADIENT_CHECKS_H_
