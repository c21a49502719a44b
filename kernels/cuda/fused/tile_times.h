#ifndef ATTND_KERNELS_CUDA_FUSED_TILE_TIMES_H_
#define ATTND_KERNELS_CUDA_FUSED_TILE_TIMES_H_

// About how long a kernel's tiles take. Knows no CUDA.

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "kernels/cuda/launch/kernel.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/mask.h"

namespace attnd::cuda {

// Of the tiles of one problem in one launch, both of which must outlive it. For
// one thread at a time. Times are microseconds of one multiprocessor.
class TileTimes {
 public:
  TileTimes(const Kernel& kernel, const Tiles& tiles);

  // What a tile takes where no mask hides anything.
  double most() const { return most_; }

  // `count` tiles in a row that take the same.
  struct Alike {
    int64_t count;
    double micros;  // of each
  };
  // Those from the problem's tile `index` on.
  Alike From(int64_t index);

 private:
  // Where a tile lies, and how many from there on lie at the same block of
  // heads that follow.
  struct Place {
    int64_t head, block, count;
  };
  Place PlaceOf(int64_t index) const;
  Place RowPlaceOf(int64_t index) const;
  Place ColumnPlaceOf(int64_t index) const;
  // `head` is one of all sequences' heads: see ColumnsGoUp (column_order.h).
  bool ColumnsOfHeadGoUp(int64_t head) const;
  // Pairs of rows and columns that the block of a sequence visits.
  double Pairs(int64_t b, int64_t block);
  double RowPairs(int64_t block) const;
  double ColumnPairs(int64_t block) const;

  const Kernel& kernel_;
  const Tiles& tiles_;
  const Problem& p_;
  double pair_micros_ = 0;  // 0: all tiles take the same
  double most_ = 0;
  int64_t sequence_ = -1;  // whose intervals these are, of each segment
  absl::InlinedVector<RowIntervals, 2> intervals_;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_FUSED_TILE_TIMES_H_
