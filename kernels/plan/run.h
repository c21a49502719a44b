#ifndef ATTND_KERNELS_PLAN_RUN_H_
#define ATTND_KERNELS_PLAN_RUN_H_

#include <algorithm>
#include <cstdint>

#include "kernels/mask.h"

namespace attnd::plan {

// Tokens first, first + 1, ... of one sequence: rows, or columns.
struct Run {
  int64_t first = 0;
  int64_t count = 0;

  constexpr int64_t end() const { return first + count; }
  constexpr bool empty() const { return count <= 0; }
  constexpr bool Has(const Run& other) const {
    return other.empty() || (first <= other.first && other.end() <= end());
  }
  friend bool operator==(const Run&, const Run&) = default;
};

constexpr Run Between(int64_t first, int64_t end) {
  return {first, std::max<int64_t>(0, end - first)};
}

// What both have.
constexpr Run Common(const Run& a, const Run& b) {
  return Between(std::max(a.first, b.first), std::min(a.end(), b.end()));
}

// The shortest run that has both.
constexpr Run Hull(const Run& a, const Run& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return Between(std::min(a.first, b.first), std::max(a.end(), b.end()));
}

// The columns that any of `rows` sees: one run, as both ends of a row's
// interval never decrease from row to row.
constexpr Run Needed(const RowIntervals& intervals, const Run& rows) {
  if (rows.empty()) return {};
  const Interval seen = intervals.Rows(rows.first, rows.end() - 1);
  return Between(seen.lo, seen.hi);
}

// The rows that see any of `columns`, and those between them.
constexpr Run Seeing(const RowIntervals& intervals, const Run& columns) {
  if (columns.empty()) return {};
  const Interval rows = intervals.RowsThatSee(columns.first, columns.end() - 1);
  return Between(rows.lo, std::min(rows.hi, intervals.rows));
}

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_RUN_H_
