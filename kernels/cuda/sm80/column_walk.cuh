#ifndef ATTND_KERNELS_CUDA_SM80_COLUMN_WALK_CUH_
#define ATTND_KERNELS_CUDA_SM80_COLUMN_WALK_CUH_

// Which columns a block of rows visits: the tiles of each segment, in order,
// between the first row's first column and the last row's last one.

#include <cstdint>

#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda::sm80 {

// A block of rows of one sequence and one K/V head, and the part of the
// sequence's columns that it looks at. It is the same for all threads of a
// team: the block of threads or, in decode, a warp.
struct RowBlock {
  Sequence sequence;
  int64_t kv_head;
  int64_t first_row, last_row;  // tokens of Q, both included
  // Columns [first, end) of the sequence, counted through all its segments.
  // Only walks with kPart heed them.
  int64_t first_column, end_column;
};

// Where a walk is: at the tile that begins at `column` of `segment`. `end` is
// the end of the columns to be visited there; column >= end means that none is
// left.
struct WalkPlace {
  int segment = -1;
  uint32_t column = 0, end = 0;
  // The sequence's column at which the next segment begins. Only walks over a
  // part of the columns (kPart) keep it.
  int64_t next_first = 0;
};

// A segment as a team sees it. It is kept in shared memory, as a kernel that
// keeps its accumulators in registers has none to spare. Columns count from the
// segment's first.
template <class T>
struct SegmentView {
  const T* k;                  // [len, head_dim], of the sequence and K/V head
  const T* v;                  // [len, value_dim]
  int64_t k_stride, v_stride;  // elements from token to token
  int64_t len;                 // tokens that the sequence has in the segment
  int64_t bias_column;         // column of the bias at which the segment begins
  Interval looked_at;  // the block's part; may reach beyond the segment's ends
  Interval all;        // columns that all rows see, which need no compare
  WalkPlace first;     // where the team enters the segment
};

__device__ inline Interval Both(Interval a, Interval b) {
  return {max(a.lo, b.lo), min(a.hi, b.hi)};
}

// Goes on from the end of a segment to the first tile of the next segment that
// has one for team `way`, and has the team's `leader` describe that segment in
// `view`. As it is rare it is not inlined, and takes and returns the place by
// value: were its address taken, the walk would be in local memory, whose loads
// wait behind all copies in flight.
template <int kCols, int kWays, bool kPart, class T>
__device__ __noinline__ WalkPlace EnterSegment(WalkPlace place, int way,
                                               const RowBlock& block,
                                               bool leader,
                                               SegmentView<T>& view) {
  const Sequence& sequence = block.sequence;
  while (++place.segment < sequence.problem->num_segments) {
    const RowIntervals rows = sequence.Intervals(place.segment);
    Interval looked_at = {0, rows.columns};
    if (kPart) {
      looked_at = {block.first_column - place.next_first,
                   block.end_column - place.next_first};
      place.next_first += rows.columns;
      if (looked_at.hi <= 0) break;
    }
    const RowIntervals::Span span =
        rows.RowSpan(block.first_row, block.last_row);
    const Interval seen = Both(span.any, looked_at);
    if (seen.empty()) continue;
    // Teams take turns in having a segment's first tile. Otherwise the first
    // team would have all tiles of short segments.
    place.column = static_cast<uint32_t>(seen.lo / kCols * kCols +
                                         (way + place.segment) % kWays * kCols);
    place.end = static_cast<uint32_t>(seen.hi);
    if (place.column >= place.end) continue;
    if (leader) {
      const DeviceSegment& s = sequence.segment(place.segment);
      view.k = static_cast<const T*>(s.k.data) + sequence.b * s.k.batch_stride +
               block.kv_head * s.k.head_stride;
      view.v = static_cast<const T*>(s.v.data) + sequence.b * s.v.batch_stride +
               block.kv_head * s.v.head_stride;
      view.k_stride = s.k.token_stride;
      view.v_stride = s.v.token_stride;
      view.len = rows.columns;
      view.bias_column = s.bias_column;
      view.looked_at = looked_at;
      view.all = Both(span.all, looked_at);
      view.first = place;
    }
    return place;
  }
  place.column = place.end = 0;
  return place;
}

// A walk over the tiles of kCols columns that the block's rows see. With kWays
// teams, each visits every kWays-th tile. With kPart, only the block's part of
// the columns is visited. Every thread of the team takes every step.
template <int kCols, int kWays = 1, bool kPart = false>
class ColumnWalk {
 public:
  // Stands before the first tile. `way` is the team's number, below kWays.
  __device__ explicit ColumnWalk(int way = 0) : way_(way) {}

  // Moves on to the next tile; false at the end. As Enter does, it may write
  // `view`.
  template <class T>
  __device__ bool Next(const RowBlock& block, bool leader,
                       SegmentView<T>& view) {
    return Step() || Enter(block, leader, view);
  }
  // Moves on to the segment's next tile; false at the segment's end.
  __device__ bool Step() {
    place_.column += kCols * kWays;
    return place_.column < place_.end;
  }
  // Moves on to the first tile of a later segment; false if none is left. The
  // team's `leader` writes `view`: the team must have finished reading what was
  // there, and must synchronise before it reads the new one.
  template <class T>
  __device__ bool Enter(const RowBlock& block, bool leader,
                        SegmentView<T>& view) {
    place_ =
        EnterSegment<kCols, kWays, kPart>(place_, way_, block, leader, view);
    if (!kPart) place_.next_first = 0;  // a constant, which takes no register
    return place_.column < place_.end;
  }
  // Moves on to the first tile of a segment that another walk of the same team
  // has entered, whose view it has written.
  template <class T>
  __device__ void Follow(const SegmentView<T>& view) {
    place_ = view.first;
  }

  __device__ int segment() const { return place_.segment; }
  // The tile's first column in its segment, a multiple of kCols.
  __device__ uint32_t column() const { return place_.column; }

 private:
  const int way_;
  WalkPlace place_;
};

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_COLUMN_WALK_CUH_
