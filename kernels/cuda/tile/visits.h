#ifndef ATTND_KERNELS_CUDA_TILE_VISITS_H_
#define ATTND_KERNELS_CUDA_TILE_VISITS_H_

// Backward's visits: which blocks of rows a block of columns of a segment
// visits, and which blocks of columns visit a block of rows. The two must
// agree, because the blocks of columns that add to the same rows wait for one
// another (turns.cuh).
//
// A block of columns visits a block of rows if the last of the rows sees beyond
// the first of the columns, and what the first of the rows sees begins before
// their end. Mostly some row then sees some column; but where positions leap
// over a whole block of columns, from one row to the next, that block visits
// the rows for nothing.

#include <cstdint>

#include "kernels/mask.h"

namespace attnd::cuda {

// The blocks of `rows` rows that the `cols` columns from `first_column` on
// visit; columns past the segment's last may be among them.
constexpr Interval RowBlocksOf(const RowIntervals& intervals,
                               int64_t first_column, int cols, int rows) {
  const Interval seen =
      intervals.RowsThatSee(first_column, first_column + cols - 1);
  if (seen.lo >= intervals.rows) return {};
  return {seen.lo / rows, (seen.hi + rows - 1) / rows};
}

// Those of them whose valid rows all see all of the columns.
constexpr Interval RowBlocksWithoutMask(const RowIntervals& intervals,
                                        int64_t first_column, int cols,
                                        int rows) {
  const Interval seen =
      intervals.RowsThatSeeAll(first_column, first_column + cols - 1);
  if (seen.empty()) return {};
  // The last block may have fewer rows.
  const int64_t end = seen.hi == intervals.rows
                          ? (intervals.rows + rows - 1) / rows
                          : seen.hi / rows;
  return {(seen.lo + rows - 1) / rows, end};
}

// The blocks of `cols` columns that visit a block of rows whose valid rows are
// [first, last].
constexpr Interval ColumnBlocksOf(const RowIntervals& intervals, int64_t first,
                                  int64_t last, int cols) {
  const Interval seen = intervals.Rows(first, last);
  return {seen.lo / cols, (seen.hi + cols - 1) / cols};
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_VISITS_H_
