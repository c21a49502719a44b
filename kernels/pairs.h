#ifndef ATTND_KERNELS_PAIRS_H_
#define ATTND_KERNELS_PAIRS_H_

// How much there is to compute behind a mask.

#include "kernels/mask.h"

namespace attnd {

// The pairs of a row and a column that it sees: the sum of the sizes of all
// rows' intervals, exact up to a double's rounding. Takes as long however many
// rows there are.
double CountPairs(const RowIntervals& intervals);

}  // namespace attnd

#endif  // ATTND_KERNELS_PAIRS_H_
