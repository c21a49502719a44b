#ifndef ATTND_TESTS_KERNELS_PROBLEM_PART_H_
#define ATTND_TESTS_KERNELS_PROBLEM_PART_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/mask.h"

namespace attnd::testing {

// `view` from token `first` on.
template <typename Void>
BasicTensorView<Void> FromToken(BasicTensorView<Void> view, int64_t first) {
  using Byte =
      std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  if (view) {
    view.data = static_cast<Byte*>(view.data) +
                first * view.token_stride * SizeOf(view.dtype);
  }
  return view;
}

// [0, tokens) in 2 to `most` intervals, of which some may be empty.
std::vector<Interval> CutAnywhere(int64_t tokens, int most,
                                  std::mt19937& random);

// Some rows and some columns of a problem, both counted with padding and over
// all segments, as a problem over the same memory.
class ProblemPart {
 public:
  // All are viewed and must outlive it. `q_starts`: where row 0 of each of the
  // whole's sequences stands, which a part of the columns cannot say.
  ProblemPart(const Problem& whole, Interval rows, Interval columns,
              absl::Span<const int64_t> q_starts);

  ProblemPart(const ProblemPart&) = delete;
  ProblemPart& operator=(const ProblemPart&) = delete;

  const Problem& problem() const { return problem_; }

 private:
  void AddPiece(const KvSegment& s, int64_t begin, int64_t end);

  Problem problem_;
  std::vector<int64_t> q_lens_, q_starts_;
  std::vector<KvSegment> segments_;
  std::vector<std::vector<int64_t>> lens_, starts_;  // by segment
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_PROBLEM_PART_H_
