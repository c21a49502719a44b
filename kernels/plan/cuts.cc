#include "kernels/plan/cuts.h"

#include <algorithm>
#include <numeric>

#include "kernels/pairs.h"

namespace attnd::plan {
namespace {

// Where [0, tokens) may be cut: at multiples of size(), up to units() of them;
// the last unit has what is left.
class Grid {
 public:
  Grid(int64_t tokens, const Grain& grain) : tokens_(tokens) {
    size_ = (grain.least + grain.size - 1) / grain.size * grain.size;
    units_ = tokens / size_;
    if (tokens % size_ >= grain.least) ++units_;
    units_ = std::max<int64_t>(units_, tokens > 0 ? 1 : 0);
  }

  int64_t units() const { return units_; }
  int64_t At(int64_t unit) const {
    return unit >= units_ ? tokens_ : unit * size_;
  }
  // Part `i` of `parts`.
  Run Part(int64_t i, int64_t parts) const {
    return Between(At(units_ * i / parts), At(units_ * (i + 1) / parts));
  }

 private:
  int64_t tokens_, size_, units_;
};

// Both of step 1.
void AddTo(Runs& runs, const Run& run) {
  if (run.empty()) return;
  if (!runs.empty() && runs.back().end() == run.first) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

// The pieces of a run whose step is a multiple of every step of `others`.
void CutLine(const Run& line, absl::Span<const Run> others, Runs& cut) {
  std::vector<int64_t> ends = {line.first, line.end()};
  for (const Run& other : others) {
    const Run common = Common(line, other);
    if (common.empty()) continue;
    ends.push_back(common.first);
    ends.push_back(common.end());
  }
  std::sort(ends.begin(), ends.end());
  for (size_t i = 1; i < ends.size(); ++i) {
    const Run piece = Common(line, Between(ends[i - 1], ends[i]));
    if (!piece.empty()) cut.push_back(piece);
  }
}

}  // namespace

std::vector<Runs> CutEvenly(int64_t tokens, int shares, const Grain& grain) {
  const Grid grid(tokens, grain);
  std::vector<Runs> cut(shares);
  for (int r = 0; r < shares; ++r) AddTo(cut[r], grid.Part(r, shares));
  return cut;
}

std::vector<Runs> CutByRanges(int64_t tokens, int shares, const CutUnit& unit) {
  constexpr int64_t kUnit = 128;
  return CutEvenly(tokens, shares,
                   {unit.columns >= tokens ? kUnit : unit.columns, 1});
}

std::vector<Runs> CutZigzag(int64_t tokens, int shares, const Grain& grain) {
  const Grid grid(tokens, grain);
  const int parts = 2 * shares;
  std::vector<Runs> cut(shares);
  for (int r = 0; r < shares; ++r) {
    AddTo(cut[r], grid.Part(r, parts));
    AddTo(cut[r], grid.Part(parts - 1 - r, parts));
  }
  return cut;
}

std::vector<Runs> CutStriped(int64_t tokens, int shares) {
  std::vector<Runs> cut(shares);
  for (int64_t i = 0; i < std::min<int64_t>(shares, tokens); ++i) {
    cut[i].push_back({i, (tokens - 1 - i) / shares + 1, shares});
  }
  return cut;
}

int64_t RowsOfPairs(const RowIntervals& intervals, double pairs,
                    const Grain& grain) {
  const Grid grid(intervals.rows, grain);
  const Run all{0, intervals.columns};
  const auto before = [&](int64_t unit) {
    return PairsOf(intervals, {0, grid.At(unit)}, all);
  };
  int64_t low = 0, high = grid.units();  // before(low) <= pairs
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (before(middle) <= pairs ? low : high) = middle;
  }
  const bool nearer = before(high) - pairs < pairs - before(low);
  return grid.At(nearer ? high : low);
}

Runs CutAtEnds(const Run& run, absl::Span<const Run> others) {
  int64_t step = run.step;
  for (const Run& other : others) {
    if (!Common(run, other).empty()) step = std::lcm(step, other.step);
  }
  const int64_t lines = step / run.step;
  Runs cut;
  for (int64_t i = 0; i < std::min(lines, run.count); ++i) {
    CutLine({run.first + i * run.step, (run.count - 1 - i) / lines + 1, step},
            others, cut);
  }
  return cut;
}

bool AreDisjoint(const Runs& runs) {
  for (size_t i = 0; i < runs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!Common(runs[i], runs[j]).empty()) return false;
    }
  }
  return true;
}

RowIntervals Restrict(const RowIntervals& intervals, const Run& rows,
                      const Run& columns) {
  RowIntervals part = intervals;
  part.rows = rows.count;
  part.columns = columns.count;
  part.q_start += rows.first * part.q_stride;
  part.kv_start += columns.first * part.kv_stride;
  part.q_stride *= rows.step;
  part.kv_stride *= columns.step;
  return part;
}

double PairsOf(const RowIntervals& intervals, const Run& rows,
               const Run& columns) {
  if (rows.empty() || columns.empty()) return 0;
  return CountPairs(Restrict(intervals, rows, columns));
}

Run Widen(const Run& columns, int64_t kv_len, const CutUnit& unit) {
  if (columns.empty()) return {};
  const int64_t size = unit.columns;
  const auto up = [&](int64_t column) {
    return std::min(kv_len, (column + size - 1) / size * size);
  };
  int64_t begin = columns.first / size * size;
  const int64_t end = up(std::max(columns.end(), begin + unit.least_columns));
  begin = std::min(begin, (end - unit.least_columns) / size * size);
  return Between(std::max<int64_t>(0, begin), end);
}

}  // namespace attnd::plan
