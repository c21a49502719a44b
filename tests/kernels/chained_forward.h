#ifndef ATTND_TESTS_KERNELS_CHAINED_FORWARD_H_
#define ATTND_TESTS_KERNELS_CHAINED_FORWARD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "tests/kernels/accuracy.h"

namespace attnd::testing {

// Forward of `args` in up to `most_links` runs, each over some of the columns
// and merged with what the one before it gave (ForwardArgs::before). Where the
// columns are cut is drawn from `seed`; a link may have none. The states
// between the runs are poisoned first and have gaps between their rows.
absl::Status ForwardInLinks(const ForwardArgs& args, int most_links,
                            uint32_t seed, const ForwardFn& run);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CHAINED_FORWARD_H_
