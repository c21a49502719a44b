#ifndef ATTND_TESTS_KERNELS_JUMP_PROBLEM_H_
#define ATTND_TESTS_KERNELS_JUMP_PROBLEM_H_

// Rows whose scores jump from one column to the next, by any size: what an
// online softmax has summed up before the jump is then as good as nothing, or
// what comes after it is. The exact results are known in closed form.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "tests/kernels/owned_tensor.h"

namespace attnd::testing {

// The score of row i of head h and column j is jumps[h] * shares[i] *
// levels[j]. Heads are apart, as a kernel may do all rows of a tile again where
// one row's scores have left the range in which it is fast.
struct JumpShape {
  DType dtype = DType::kBF16;
  int64_t head_dim = 64;  // at least 3
  int64_t value_dim = 64;
  int64_t columns = 0;
  std::vector<double> jumps;   // of the heads
  std::vector<double> shares;  // of the rows
};

// `rows` shares: 1, now and then, and others between -1 and 1.
std::vector<double> Shares(int64_t rows);
// `first`, and from there by `step` to `last`.
std::vector<double> Range(double first, double last, double step);

// Levels 0, 1 and 2 of `columns` columns.
std::vector<int> RiseAt(int64_t column, int64_t columns);    // 0, then 1
std::vector<int> FallAt(int64_t column, int64_t columns);    // 1, then 0
std::vector<int> PeakAt(int64_t column, int64_t columns);    // 1 there alone
std::vector<int> StairsAt(int64_t column, int64_t columns);  // 0, 1 and 2

// One sequence, one K/V head, scale 1, no mask.
class JumpProblem {
 public:
  explicit JumpProblem(const JumpShape& shape);
  JumpProblem(const JumpProblem&) = delete;
  JumpProblem& operator=(const JumpProblem&) = delete;

  // Sets K, and poisons the outputs. To be called before each run of `args`.
  void SetLevels(const std::vector<int>& levels);

  // Whether LSE and, in some columns, O are right in every row, after a forward
  // of `args` that succeeded. The message names the first row that is not, and
  // its jump.
  ::testing::AssertionResult Check() const;

  ForwardArgs args;

 private:
  ::testing::AssertionResult CheckRow(int64_t head, int64_t row) const;

  const JumpShape shape_;
  OwnedTensor q_, k_, v_, o_;
  OwnedRows lse_;
  KvSegment segment_;
  std::vector<int64_t> level_columns_;     // how many columns have a level
  std::vector<std::vector<double>> sums_;  // of their rows of V
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_JUMP_PROBLEM_H_
