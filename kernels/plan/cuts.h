#ifndef ATTND_KERNELS_PLAN_CUTS_H_
#define ATTND_KERNELS_PLAN_CUTS_H_

// Ways to share out one sequence's tokens.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cut_unit.h"
#include "kernels/mask.h"
#include "kernels/plan/run.h"

namespace attnd::plan {

// Runs of tokens, in order, none of them empty.
using Runs = std::vector<Run>;

// Where tokens may be cut: `size` at a time, and no part has fewer than `least`
// though there are more.
struct Grain {
  int64_t size = 1;
  int64_t least = 1;
};
inline Grain RowGrain(const CutUnit& unit) {
  return {unit.rows, unit.least_rows};
}
inline Grain ColumnGrain(const CutUnit& unit) { return {unit.columns, 1}; }

// `shares` parts of [0, tokens) of about the same length, of which the first
// ones are empty where there are too few tokens.
std::vector<Runs> CutEvenly(int64_t tokens, int shares, const Grain& grain);
// The same where a device has what lies on it by ranges. Forward kernels that
// share out a sequence's columns by themselves have a unit of all of them,
// which says nothing of where columns may lie.
std::vector<Runs> CutByRanges(int64_t tokens, int shares, const CutUnit& unit);
// Each share is one part of 2 * shares from the front, and the one as far from
// the back. Under a causal mask all have about as many pairs.
std::vector<Runs> CutZigzag(int64_t tokens, int shares, const Grain& grain);

// Token i is the share i % shares's: any part of a sequence is divided evenly.
std::vector<Runs> CutStriped(int64_t tokens, int shares);

// The first rows, as many as the grain allows for, that see about `pairs` pairs
// of a row and a column.
int64_t RowsOfPairs(const RowIntervals& intervals, double pairs,
                    const Grain& grain);

// `run` in pieces, each of which any of `others` has as a whole or not at all:
// it is cut where any of them begins or ends, and first into lines of one step
// where they have longer steps than its own.
Runs CutAtEnds(const Run& run, absl::Span<const Run> others);

// Whether no token is in two of them.
bool AreDisjoint(const Runs& runs);

// `intervals` of some rows over some columns, as if there were no others.
RowIntervals Restrict(const RowIntervals& intervals, const Run& rows,
                      const Run& columns);
// The pairs of these that see each other.
double PairsOf(const RowIntervals& intervals, const Run& rows,
               const Run& columns);

// `columns`, of step 1, with what is needed to begin and end them where the
// unit allows.
Run Widen(const Run& columns, int64_t kv_len, const CutUnit& unit);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_CUTS_H_
