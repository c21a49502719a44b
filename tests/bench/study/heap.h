#ifndef ATTND_TESTS_BENCH_STUDY_HEAP_H_
#define ATTND_TESTS_BENCH_STUDY_HEAP_H_

// How much memory this program holds of what operator new gives, which is
// counted here. Thread-safe.

#include <cstdint>

namespace attnd::bench {

int64_t HeapBytes();
// The most at once since ResetHeapPeak.
int64_t HeapPeakBytes();
void ResetHeapPeak();

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_STUDY_HEAP_H_
