#ifndef ATTND_TESTS_KERNELS_CHAINED_BACKWARD_H_
#define ATTND_TESTS_KERNELS_CHAINED_BACKWARD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "tests/kernels/accuracy.h"

namespace attnd::testing {

// Backward of `args` in up to `most_links` squared runs, each of some rows over
// some columns: dq is passed on from one run of columns to the next
// (BackwardArgs::dq_before), dk and dv from one run of rows to the next
// (KvSegment::dk_before, dv_before). Where rows and columns are cut is drawn
// from `seed`; a link may have none. What is passed on is poisoned first and
// has gaps between its rows. It lies in memory of its own, or each run adds to
// it in place, in the output itself where that is f32.
absl::Status BackwardInLinks(const BackwardArgs& args, int most_links,
                             uint32_t seed, bool in_place,
                             const BackwardFn& run);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CHAINED_BACKWARD_H_
