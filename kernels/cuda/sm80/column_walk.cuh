#ifndef ATTND_KERNELS_CUDA_SM80_COLUMN_WALK_CUH_
#define ATTND_KERNELS_CUDA_SM80_COLUMN_WALK_CUH_

// Which columns a block of rows visits: the tiles of each segment, in order,
// between the first row's first column and the last row's last one.

#include <cstdint>

#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda::sm80 {

// A block of rows of one sequence and one K/V head, and the part of the
// sequence's columns that it looks at. The same for all threads of a team: the
// block of threads, or a warp.
struct RowBlock {
  Sequence sequence;
  int64_t kv_head;
  int64_t first_row, last_row;       // both included
  int64_t first_column, end_column;  // of the sequence's, segment after segment
};

// Where a walk is: the tile at `column` of `segment`, up to `end`; column >=
// end after the last.
struct WalkPlace {
  int segment = -1;
  uint32_t column = 0, end = 0;
  // The sequence's column where the next segment begins; kept by those who look
  // at a part of the columns.
  int64_t next_first = 0;
};

// A segment as a team sees it; kept in shared memory, as a kernel that keeps
// its accumulators in registers has none to spare.
template <class T>
struct SegmentView {
  const T* k;  // token 0 of the sequence and head
  const T* v;
  int64_t k_stride, v_stride;  // elements from token to token
  int64_t len;                 // the sequence's own
  int64_t bias_column;         // of a row of the bias, where it begins
  Interval looked_at;          // the part of it that the block looks at
  Interval all;                // the columns that need no compare
  WalkPlace first;             // where the team enters it
};

__device__ inline Interval Both(Interval a, Interval b) {
  return {max(a.lo, b.lo), min(a.hi, b.hi)};
}

// From the end of a segment to the first tile of the next that has one for
// `way`. Rare: a function of its own, which takes and gives values alone, lest
// the walk be in local memory, whose loads wait behind all copies on their way.
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
    // Another team begins each segment, or all short ones would be the first's.
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

// Walks tiles of kCols columns: every kWays-th of them, if there are several
// teams; in the block's part of the columns, or where there are no parts in all
// of them. Every thread of the team takes every step.
template <int kCols, int kWays = 1, bool kPart = false>
class ColumnWalk {
 public:
  // Before the first tile. `way`: which team this is.
  __device__ explicit ColumnWalk(int way = 0) : way_(way) {}

  // To the next tile; false at the end.
  template <class T>
  __device__ bool Next(const RowBlock& block, bool leader,
                       SegmentView<T>& view) {
    return Step() || Enter(block, leader, view);
  }
  // To the segment's next tile; false at its end.
  __device__ bool Step() {
    place_.column += kCols * kWays;
    return place_.column < place_.end;
  }
  // To the first tile of another segment; false if none is left. The team's
  // `leader` writes `view`: the team must synchronise before it is read, and
  // have read what was there.
  template <class T>
  __device__ bool Enter(const RowBlock& block, bool leader,
                        SegmentView<T>& view) {
    place_ =
        EnterSegment<kCols, kWays, kPart>(place_, way_, block, leader, view);
    if (!kPart) place_.next_first = 0;  // in no register
    return place_.column < place_.end;
  }
  // The same, of the segment that another walk of the team has entered.
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
