#ifndef ATTND_TESTS_BENCH_STUDY_RING_ACCURACY_H_
#define ATTND_TESTS_BENCH_STUDY_RING_ACCURACY_H_

#include "tests/bench/study/ring/options.h"

namespace attnd::bench {

// For each plan, and on a CPU for a ring of partial results in 16 bits and in
// f32, each op and each device: how far the results of its tokens are from
// those of one device, at most and on average, and the root of the mean square
// of what they, and one device's, are off from float64. And what memory the
// plan counts on each device, what was asked for, and what was copied.
void PrintAccuracy(const RingStudyOptions& options, const Devices& devices);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_STUDY_RING_ACCURACY_H_
