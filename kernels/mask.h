#ifndef ATTND_KERNELS_MASK_H_
#define ATTND_KERNELS_MASK_H_

// Every mask but bias is one interval of columns per row, and both its ends
// never decrease from row to row. Kernels and references ask the same
// RowIntervals, so they cannot disagree: tiles are skipped by their first and
// last rows, and only tiles on a boundary compare.

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"

namespace attnd {

struct Interval {
  int64_t lo = 0;
  int64_t hi = 0;  // [lo, hi); empty when lo >= hi

  constexpr bool empty() const { return lo >= hi; }
  constexpr int64_t size() const { return std::max<int64_t>(0, hi - lo); }
};

// The columns of one segment that each row of one sequence sees. Plain data:
// it travels to a device as it is, and is constexpr to be called there.
struct RowIntervals {
  int64_t rows = 0;     // the sequence's own q_len
  int64_t columns = 0;  // the segment's own length for this sequence
  int64_t q_start = 0, q_stride = 1;
  int64_t kv_start = 0, kv_stride = 1;
  int64_t left = -1, right = -1;  // causal is right = 0; -1: unlimited

  // Defined for 0 <= row < rows; never fails, whatever the positions.
  constexpr Interval Row(int64_t row) const {
    const int64_t offset = q_start + row * q_stride - kv_start;
    Interval r{0, columns};
    if (left >= 0) r.lo = Clamp(CeilDiv(offset - left, kv_stride));
    if (right >= 0) r.hi = Clamp(FloorDiv(offset + right, kv_stride) + 1);
    return r;
  }

  // Of rows [first, last]: the union, what a tile of rows may touch, and the
  // intersection, columns that need no compare.
  struct Span {
    Interval any, all;
  };
  constexpr Span RowSpan(int64_t first, int64_t last) const {
    const Interval top = Row(first), bottom = Row(last);
    return {{top.lo, bottom.hi}, {bottom.lo, top.hi}};
  }
  constexpr Interval Rows(int64_t first, int64_t last) const {
    return RowSpan(first, last).any;
  }
  constexpr Interval AllRows(int64_t first, int64_t last) const {
    return RowSpan(first, last).all;
  }

  // The other way round, the rows that see any of columns [first, last], and
  // those that see all of them: one interval each, empty when lo >= hi. Columns
  // past the last, which no row sees, may be among them.
  constexpr Interval RowsThatSee(int64_t first, int64_t last) const {
    return {RowsEndingBy(first), RowsBeginningBy(last)};
  }
  constexpr Interval RowsThatSeeAll(int64_t first, int64_t last) const {
    return {RowsEndingBy(last), RowsBeginningBy(first)};
  }

  // a / b of b > 0, rounded down and up.
  static constexpr int64_t FloorDiv(int64_t a, int64_t b) {
    if (b == 1) return a;  // nearly always, and a GPU divides slowly
    return a >= 0 ? Quotient(a, b) : -Quotient(-a - 1, b) - 1;
  }
  static constexpr int64_t CeilDiv(int64_t a, int64_t b) {
    return -FloorDiv(-a, b);
  }

 private:
  // Not std::clamp: its references would be places in a GPU's local memory.
  static constexpr int64_t Within(int64_t n, int64_t most) {
    return n < 0 ? 0 : n > most ? most : n;
  }
  constexpr int64_t Clamp(int64_t column) const {
    return Within(column, columns);
  }
  // The rows, which are the first ones, whose hi is at most `column`, and those
  // whose lo is.
  constexpr int64_t RowsEndingBy(int64_t column) const {
    if (column >= columns) return rows;
    if (right < 0) return 0;
    const int64_t offset = kv_start + column * kv_stride - q_start;
    return Within(CeilDiv(offset - right, q_stride), rows);
  }
  constexpr int64_t RowsBeginningBy(int64_t column) const {
    if (left < 0 || column >= columns) return rows;
    const int64_t offset = kv_start + column * kv_stride - q_start;
    return Within(FloorDiv(offset + left, q_stride) + 1, rows);
  }
  // Of a >= 0 and b > 0.
  static constexpr int64_t Quotient(int64_t a, int64_t b) {
#ifdef __CUDA_ARCH__
    // Bit by bit: a division of 64 bits is a function there, and to call it
    // takes registers that the callers do not have.
    uint64_t quotient = static_cast<uint64_t>(a), rest = 0;
#pragma unroll 1
    for (int bit = 0; bit < 64; ++bit) {
      rest = rest << 1 | quotient >> 63;
      quotient <<= 1;
      if (rest >= static_cast<uint64_t>(b)) {
        rest -= static_cast<uint64_t>(b);
        quotient |= 1;
      }
    }
    return static_cast<int64_t>(quotient);
#else
    return a / b;
#endif
  }
};

// The mask with every limit where RowIntervals wants it: causal in `right`,
// and no window wider than any two positions can lie apart, so that the sums in
// Row never overflow.
inline Mask Resolve(const Mask& mask) {
  constexpr int64_t kWidest = 2 * kMaxPosition;
  return {.causal = mask.causal,
          .left = std::min(mask.left, kWidest),
          .right = mask.causal ? 0 : std::min(mask.right, kWidest)};
}

// The intervals of sequence `b` over segment `s` of the problem.
inline RowIntervals MakeRowIntervals(const Problem& p, int64_t b,
                                     const KvSegment& s) {
  const Mask mask = Resolve(p.mask);
  RowIntervals r;
  r.rows = QLen(p, b);
  r.columns = KvLen(s, b);
  r.q_start = !p.q_starts.empty()
                  ? p.q_starts[b]
                  : p.q_start.value_or(KvLen(p, b) - QLen(p, b));
  r.q_stride = p.q_stride;
  r.kv_start =
      s.positions.starts.empty() ? s.positions.start : s.positions.starts[b];
  r.kv_stride = s.positions.stride;
  r.left = mask.left;
  r.right = mask.right;
  return r;
}

}  // namespace attnd

#endif  // ATTND_KERNELS_MASK_H_
