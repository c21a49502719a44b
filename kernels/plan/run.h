#ifndef ATTND_KERNELS_PLAN_RUN_H_
#define ATTND_KERNELS_PLAN_RUN_H_

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/mask.h"

namespace attnd::plan {

// Tokens first, first + step, ... of one sequence: rows, or columns. Runs of
// one step are disjoint where their first tokens differ by no multiple of it.
struct Run {
  int64_t first = 0;
  int64_t count = 0;
  int64_t step = 1;  // >= 1

  // Past the last token.
  constexpr int64_t end() const {
    return empty() ? first : first + (count - 1) * step + 1;
  }
  constexpr bool empty() const { return count <= 0; }
  constexpr bool Has(const Run& other) const {
    if (other.empty()) return true;
    if (other.first < first || end() < other.end()) return false;
    return (other.first - first) % step == 0 &&
           (other.count == 1 || other.step % step == 0);
  }
  friend bool operator==(const Run&, const Run&) = default;
};

constexpr Run Between(int64_t first, int64_t end) {
  return {first, std::max<int64_t>(0, end - first)};
}

// What both have. Takes as long as there are tokens of `a` of which one must be
// b's: one where either step divides the other.
constexpr Run Common(const Run& a, const Run& b) {
  const int64_t first = std::max(a.first, b.first);
  const int64_t end = std::min(a.end(), b.end());
  if (a.step == 1 && b.step == 1) return Between(first, end);
  const int64_t tries = b.step / std::gcd(a.step, b.step);
  int64_t token = a.first + (first - a.first + a.step - 1) / a.step * a.step;
  for (int64_t i = 0; i < tries && token < end; ++i, token += a.step) {
    if ((token - b.first) % b.step != 0) continue;
    const int64_t step = a.step * tries;
    return {token, (end - 1 - token) / step + 1, step};
  }
  return {};
}

// The shortest run that has both.
constexpr Run Hull(const Run& a, const Run& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  const int64_t step = std::gcd(std::gcd(a.step, b.step), a.first - b.first);
  const int64_t first = std::min(a.first, b.first);
  const int64_t last = std::max(a.end(), b.end()) - 1;
  return {first, (last - first) / step + 1, step};
}

// The columns that any of `rows` sees, and those between them: one run, as both
// ends of a row's interval never decrease from row to row.
constexpr Run Needed(const RowIntervals& intervals, const Run& rows) {
  if (rows.empty()) return {};
  const Interval seen = intervals.Rows(rows.first, rows.end() - 1);
  return Between(seen.lo, seen.hi);
}

// The rows that see any of `columns`, or of those between them, and the rows
// between those.
constexpr Run Seeing(const RowIntervals& intervals, const Run& columns) {
  if (columns.empty()) return {};
  const Interval rows = intervals.RowsThatSee(columns.first, columns.end() - 1);
  return Between(rows.lo, std::min(rows.hi, intervals.rows));
}

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_RUN_H_
