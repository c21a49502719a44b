#ifndef ATTND_KERNELS_CUDA_SM90_COLUMN_WALK_CUH_
#define ATTND_KERNELS_CUDA_SM90_COLUMN_WALK_CUH_

// Which columns a tile of rows visits: the tiles of each segment, in order,
// between the first row's first column and the last row's last one.

#include <cstdint>

#include "kernels/cuda/sequence.h"

namespace attnd::cuda::sm90 {

// A tile of columns and where its segment's end. A plain value: the loader
// keeps the one that it loads and the one after it.
struct WalkPlace {
  int segment = -1;
  uint32_t column = 0;  // in the segment, a multiple of the tile's columns
  uint32_t end = 0;     // of what is visited; column >= end: no tile
  uint32_t all_lo = 0, all_hi = 0;  // the columns that need no compare
  uint32_t padding = 0;  // where columns begin that are not to be read

  __device__ bool valid() const { return column < end; }
};

// The first tile of the segments after `segment` that rows [first_row,
// last_row] see something of.
template <int kCols>
__device__ WalkPlace EnterSegment(int segment, const Sequence& sequence,
                                  int64_t first_row, int64_t last_row) {
  WalkPlace place;
  while (++segment < sequence.problem->num_segments) {
    const RowIntervals rows = sequence.Intervals(segment);
    const Interval first = rows.Row(first_row), last = rows.Row(last_row);
    if (first.lo >= last.hi) continue;
    place.segment = segment;
    place.column = static_cast<uint32_t>(first.lo) / kCols * kCols;
    place.end = static_cast<uint32_t>(last.hi);
    place.all_lo = static_cast<uint32_t>(last.lo);
    place.all_hi = static_cast<uint32_t>(first.hi);
    place.padding = rows.columns < sequence.segment(segment).len
                        ? static_cast<uint32_t>(rows.columns)
                        : ~uint32_t{0};
    break;
  }
  return place;
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_COLUMN_WALK_CUH_
