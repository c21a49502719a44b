#ifndef ATTND_TESTS_KERNELS_CUDA_HIDING_H_
#define ATTND_TESTS_KERNELS_CUDA_HIDING_H_

// Ways to keep rows from seeing any column.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention.h"

namespace attnd::testing {

// What problems that hide have: this many sequences, of so many keys at most.
inline constexpr int64_t kHidingBatch = 3, kHidingKvLen = 70;

// A problem with one segment that may be made to hide. Both must outlive this.
struct HidingProblem {
  HidingProblem(Problem& problem, std::vector<KvSegment>& segments)
      : problem(problem), segments(segments) {
    problem.kv = segments;
  }
  HidingProblem(const HidingProblem&) = delete;
  HidingProblem& operator=(const HidingProblem&) = delete;

  // Whether the row sees anything.
  bool Sees(int64_t b, int64_t row) const;
  // Whether any row sees the column of the first segment.
  bool IsSeen(int64_t b, int64_t column) const;

  Problem& problem;
  std::vector<KvSegment>& segments;
  std::vector<int64_t> q_lens, kv_lens;
};

struct Hiding {
  const char* name;
  int64_t kv_len;
  bool all;  // of the rows see nothing
  void (*apply)(HidingProblem& of);
};
absl::Span<const Hiding> Hidings();

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_HIDING_H_
