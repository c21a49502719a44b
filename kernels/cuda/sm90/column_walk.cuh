#ifndef ATTND_KERNELS_CUDA_SM90_COLUMN_WALK_CUH_
#define ATTND_KERNELS_CUDA_SM90_COLUMN_WALK_CUH_

// Which columns a tile of rows visits: the tiles of each segment, in order,
// from the first row's first column to the last row's last one. Arithmetic has
// 64 bits only where a segment begins, and 32 elsewhere, because all others
// wait for the warps that walk.

#include <climits>
#include <cstdint>

#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda::sm90 {

enum Steps : uint32_t {
  kLoSteps = 1,  // lo is one more with each row
  kHiSteps = 2,  // hi is one more with each row
  kUneven = 4,   // positions have other steps than 1: SeenUneven asks each row
};

// A tile of columns, and what a tile of rows sees of its segment. Columns count
// from the segment's first.
struct WalkPlace {
  int segment = -1;
  int column = 0;  // the tile's first, a multiple of the tile's columns
  int end = 0;     // visited columns end here; column >= end: there is no tile
  int all_lo = 0, all_hi = 0;  // all rows see all of columns [all_lo, all_hi)
  int columns = 0;             // the sequence's columns in the segment
  int padding = INT_MAX;       // columns from here on must not be read
  // The first row sees [lo, hi), before that is limited to the segment.
  int lo = 0, hi = 0;
  uint32_t steps = 0;  // bits of Steps

  __device__ bool valid() const { return column < end; }
};

// Columns [lo, hi) of a segment.
struct SeenColumns {
  int lo, hi;
};

// What row `row` of a tile sees of the place's segment, unless it is kUneven.
__device__ inline SeenColumns SeenOf(const WalkPlace& place, int row) {
  const auto clamp = [&](int x) { return min(max(x, 0), place.columns); };
  return {clamp(place.lo + (place.steps & kLoSteps ? row : 0)),
          clamp(place.hi + (place.steps & kHiSteps ? row : 0))};
}
// The same if it is kUneven, but `row` counts from the sequence's first.
__device__ inline SeenColumns SeenUneven(const WalkPlace& place,
                                         const Sequence& sequence,
                                         int64_t row) {
  const Interval seen = sequence.Intervals(place.segment).Row(row);
  return {static_cast<int>(seen.lo), static_cast<int>(seen.hi)};
}

// x in 32 bits, or a value so far out that no segment has as many columns.
__device__ inline int Saturate(int64_t x) {
  constexpr int kMost = INT_MAX - 1024;
  return static_cast<int>(min(max(x, int64_t{-kMost}), int64_t{kMost}));
}

// The first tile of columns, in the segments after `segment`, of which the
// `valid` rows from `first_row` on may see something. Not valid() if there is
// none.
template <int kCols>
__device__ WalkPlace EnterSegment(const Sequence& sequence, int64_t first_row,
                                  int valid, int segment) {
  WalkPlace place;
  const DeviceProblem& p = *sequence.problem;
  while (++segment < p.num_segments) {
    const DeviceSegment& s = sequence.segment(segment);
    const int64_t columns = sequence.Len(segment);
    const int64_t offset = sequence.q_start + first_row -
                           Of(sequence.blob, s.starts, sequence.b, s.start);
    place.columns = static_cast<int>(columns);
    place.steps = (p.left >= 0 ? kLoSteps : 0) | (p.right >= 0 ? kHiSteps : 0);
    place.lo = p.left >= 0 ? Saturate(offset - p.left) : 0;
    place.hi = p.right >= 0 ? Saturate(offset + p.right + 1) : INT_MAX;
    if (p.q_stride != 1 || s.stride != 1) place.steps |= kUneven;
    place.segment = segment;
    SeenColumns first = SeenOf(place, 0), last = SeenOf(place, valid - 1);
    if (place.steps & kUneven) [[unlikely]] {
      first = SeenUneven(place, sequence, first_row);
      last = SeenUneven(place, sequence, first_row + valid - 1);
    }
    if (first.lo >= last.hi) continue;
    place.column = first.lo / kCols * kCols;
    place.end = last.hi;
    place.all_lo = last.lo;
    place.all_hi = first.hi;
    place.padding = columns < s.len ? place.columns : INT_MAX;
    return place;
  }
  return {};
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_COLUMN_WALK_CUH_
