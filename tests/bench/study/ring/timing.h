#ifndef ATTND_TESTS_BENCH_STUDY_RING_TIMING_H_
#define ATTND_TESTS_BENCH_STUDY_RING_TIMING_H_

#include "tests/bench/study/ring/options.h"

namespace attnd::bench {

// For each length, op and plan: how long it takes, with inputs where the plan
// wants them, until every device is idle. Sides take turns, and settle, as in
// plan_bench; one device alone is a side, too. Results are compared with one
// device's: O, and each vector of a gradient, may differ from its by a 64th.
void PrintTimes(const RingStudyOptions& options, const Devices& devices);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_STUDY_RING_TIMING_H_
