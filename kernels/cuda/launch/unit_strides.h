#ifndef ATTND_KERNELS_CUDA_LAUNCH_UNIT_STRIDES_H_
#define ATTND_KERNELS_CUDA_LAUNCH_UNIT_STRIDES_H_

// Problems whose rows and columns stand equally far apart, as the stripes of a
// sequence do: rows i, i + N, ... over columns j, j + N, .... What each row
// sees then moves by one column from row to row, as it does where they stand
// one apart. Kernels are fast at that; where strides differ, or are larger,
// they divide for each row.

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "kernels/attention.h"

namespace attnd::cuda {

class UnitStrides {
 public:
  // `problem` must outlive this.
  explicit UnitStrides(const Problem& problem);
  UnitStrides(const UnitStrides&) = delete;
  UnitStrides& operator=(const UnitStrides&) = delete;

  // A problem in which each row sees the same columns, and positions are one
  // apart: the one that was given if it is of that kind, or if there is no
  // such.
  const Problem& problem() const { return *problem_; }

 private:
  // Whether all positions stand equally far apart, and more than one.
  static bool IsStriped(const Problem& p);
  // False if what rows see cannot be said by one window for all segments and
  // sequences: limits that are no multiple of the stride may fall differently.
  bool FindWindow(const Problem& p);

  const Problem* problem_;
  Problem unit_;
  absl::InlinedVector<KvSegment, 2> segments_;
  // By segment and sequence, where the first column stands; row 0 stands at 0.
  std::vector<std::vector<int64_t>> starts_;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_UNIT_STRIDES_H_
