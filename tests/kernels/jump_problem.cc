#include "tests/kernels/jump_problem.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "tests/kernels/accuracy.h"

namespace attnd::testing {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr int kLevels = 3;
// A jump is the sum of so many elements of q: 16-bit types hold few digits.
constexpr int64_t kParts = 3;
constexpr int64_t kStairColumns = 97;  // from the first stair to the second

std::vector<int> Levels(int64_t columns, int (*level)(int64_t, int64_t),
                        int64_t column) {
  std::vector<int> levels(columns);
  for (int64_t j = 0; j < columns; ++j) levels[j] = level(j, column);
  return levels;
}

}  // namespace

std::vector<int> RiseAt(int64_t column, int64_t columns) {
  return Levels(
      columns, [](int64_t j, int64_t at) { return j >= at ? 1 : 0; }, column);
}
std::vector<int> FallAt(int64_t column, int64_t columns) {
  return Levels(
      columns, [](int64_t j, int64_t at) { return j < at ? 1 : 0; }, column);
}
std::vector<int> PeakAt(int64_t column, int64_t columns) {
  return Levels(
      columns, [](int64_t j, int64_t at) { return j == at ? 1 : 0; }, column);
}
std::vector<int> StairsAt(int64_t column, int64_t columns) {
  return Levels(
      columns,
      [](int64_t j, int64_t at) {
        return j < at ? 0 : j < at + kStairColumns ? 1 : 2;
      },
      column);
}

std::vector<double> Range(double first, double last, double step) {
  std::vector<double> values;
  for (int64_t i = 0; first + i * step <= last + step / 2; ++i) {
    values.push_back(first + i * step);
  }
  return values;
}

std::vector<double> Shares(int64_t rows) {
  constexpr double kShares[] = {1, 0.25, 1, 0, -1, 0.5, 0.9};
  std::vector<double> shares(rows);
  for (int64_t i = 0; i < rows; ++i) shares[i] = kShares[i % 7];
  return shares;
}

JumpProblem::JumpProblem(const JumpShape& shape)
    : shape_(shape),
      q_(shape.dtype, 1, shape.shares.size(), shape.jumps.size(),
         shape.head_dim),
      k_(shape.dtype, 1, shape.columns, 1, shape.head_dim),
      v_(shape.dtype, 1, shape.columns, 1, shape.value_dim),
      o_(shape.dtype, 1, shape.shares.size(), shape.jumps.size(),
         shape.value_dim),
      lse_(1, shape.jumps.size(), shape.shares.size()) {
  std::mt19937 random(2);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < q_.tokens(); ++i) {
    for (int64_t h = 0; h < q_.heads(); ++h) {
      double rest = shape.jumps[h] * shape.shares[i];
      for (int64_t d = 0; d < q_.dim(); ++d) {
        q_.Set(0, i, h, d, d < kParts ? rest : 0);
        rest -= q_.Get(0, i, h, d);
      }
    }
  }
  for (int64_t j = 0; j < k_.tokens(); ++j) {
    for (int64_t d = 0; d < k_.dim(); ++d) k_.Set(0, j, 0, d, normal(random));
    for (int64_t d = 0; d < v_.dim(); ++d) v_.Set(0, j, 0, d, normal(random));
  }
  segment_.k = std::as_const(k_).view();
  segment_.v = std::as_const(v_).view();
  segment_.len = k_.tokens();
  Problem& p = args.problem;
  p.batch = p.kv_heads = 1;
  p.q_heads = q_.heads();
  p.q_len = q_.tokens();
  p.head_dim = shape.head_dim;
  p.value_dim = shape.value_dim;
  p.q = std::as_const(q_).view();
  p.kv = {&segment_, 1};
  p.scale = 1.0f;
  args.o = o_.view();
  args.lse = lse_.view();
}

void JumpProblem::SetLevels(const std::vector<int>& levels) {
  level_columns_.assign(kLevels, 0);
  sums_.assign(kLevels, std::vector<double>(v_.dim()));
  for (int64_t j = 0; j < k_.tokens(); ++j) {
    ++level_columns_[levels[j]];
    for (int64_t d = 0; d < kParts; ++d) k_.Set(0, j, 0, d, levels[j]);
    for (int64_t d = 0; d < v_.dim(); ++d) {
      sums_[levels[j]][d] += v_.Get(0, j, 0, d);
    }
  }
  o_.Poison();
  lse_.Poison();
}

AssertionResult JumpProblem::CheckRow(int64_t head, int64_t row) const {
  double jump = 0;  // as q has it
  for (int64_t d = 0; d < kParts; ++d) jump += q_.Get(0, row, head, d);
  double top = -HUGE_VAL, sum = 0;
  for (int n = 0; n < kLevels; ++n) {
    if (level_columns_[n] > 0) top = std::max(top, jump * n);
  }
  double weights[kLevels];  // of one column
  for (int n = 0; n < kLevels; ++n) {
    weights[n] = level_columns_[n] > 0 ? std::exp(jump * n - top) : 0;
    sum += weights[n] * level_columns_[n];
  }
  const auto wrong = [&](double got, double exact) {
    return AssertionFailure()
           << got << ", exactly " << exact << ", in row " << row << " of head "
           << head << ", which jumps by " << jump;
  };
  const double lse = top + std::log(sum);
  const double got_lse = lse_.Get(0, head, row);
  // A few roundings of scores, which are within two jumps.
  const double size = 1 + 2 * std::abs(jump) + std::abs(lse);
  if (!(std::abs(got_lse - lse) <= 0x1p-20 * size)) {
    return wrong(got_lse, lse) << ", LSE";
  }
  // V is within 5; P and O are rounded, and a score of some hundreds, too.
  const double off = 5 * (3 * RoundingUnit(shape_.dtype) + 0x1p-13);
  for (int64_t d : {int64_t{0}, v_.dim() / 3, v_.dim() - 1}) {
    double o = 0;
    for (int n = 0; n < kLevels; ++n) o += weights[n] * sums_[n][d] / sum;
    const double got_o = o_.Get(0, row, head, d);
    if (!(std::abs(got_o - o) <= off)) {
      return wrong(got_o, o) << ", column " << d << " of O";
    }
  }
  return AssertionSuccess();
}

AssertionResult JumpProblem::Check() const {
  for (int64_t h = 0; h < o_.heads(); ++h) {
    for (int64_t i = 0; i < o_.tokens(); ++i) {
      if (AssertionResult row = CheckRow(h, i); !row) return row;
    }
  }
  return AssertionSuccess();
}

}  // namespace attnd::testing
