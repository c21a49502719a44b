#include "kernels/pairs.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/numeric/int128.h"

namespace attnd {
namespace {

using absl::int128;

// The sum of floor((a * i + b) / m) over 0 <= i < n, for a, b >= 0 and m > 0.
// It counts the points with whole coordinates below a line: those below whole
// steps of the slope and of the start at once, and the rest, where the line
// rises by less than 1 a step, with the axes exchanged, as Euclid would.
int128 FloorSum(int128 n, int128 a, int128 b, int128 m) {
  int128 sum = 0;
  while (n > 0) {
    sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
    a %= m;
    b %= m;
    const int128 top = a * n + b;
    n = top / m;
    b = top % m;
    std::swap(a, m);
  }
  return sum;
}

// One end of the intervals: floor((start + row * step) / stride), but at least
// 0 and at most `columns`.
struct Ends {
  int64_t start, step, stride, columns;

  // The rows, which are the first ones, whose end is less than `column`.
  int64_t RowsBefore(int64_t column, int64_t rows) const {
    const int128 gap = int128(column) * stride - start;
    if (gap <= 0) return 0;
    return static_cast<int64_t>(
        std::min<int128>((gap + step - 1) / step, rows));
  }
  int128 Sum(int64_t rows) const {
    const int64_t at_zero = RowsBefore(1, rows);
    const int64_t below_all = std::max(at_zero, RowsBefore(columns, rows));
    return FloorSum(below_all - at_zero, step, start + int128(at_zero) * step,
                    stride) +
           int128(rows - below_all) * columns;
  }
};

}  // namespace

// No interval ends before it begins, as its limits are no less than 0. So the
// two ends can be summed apart.
double CountPairs(const RowIntervals& r) {
  const int64_t offset = r.q_start - r.kv_start;
  const auto ends = [&](int64_t start) {
    return Ends{start, r.q_stride, r.kv_stride, r.columns}.Sum(r.rows);
  };
  const int128 hi = r.right < 0 ? int128(r.rows) * r.columns
                                : ends(offset + r.right + r.kv_stride);
  const int128 lo =
      r.left < 0 ? int128(0) : ends(offset - r.left + r.kv_stride - 1);
  return static_cast<double>(hi - lo);
}

}  // namespace attnd
