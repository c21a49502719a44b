#ifndef ATTND_TESTS_KERNELS_CUDA_LARGE_SCORES_H_
#define ATTND_TESTS_KERNELS_CUDA_LARGE_SCORES_H_

#include <cstdint>
#include <vector>

#include "tests/kernels/cuda/gradient_problem.h"

namespace attnd::testing {

// Scores so large that a rounding of them is some percent of P, and of each row
// one, the winner, that is far above the others: its P is exp(score - LSE), and
// 1 if backward finds the score that forward found.
class LargeScores {
 public:
  // Multiplies Q and K by `size`. The problem has one sequence and one K/V
  // head. Rows that have no clear winner get a dO of 0.
  LargeScores(double size, GradientProblem& problem);

  // After forward: adds to every LSE, as columns elsewhere do.
  void RaiseLse(float by);
  // After backward: how far dV is from what winners give it, relative to the
  // sum of what each does, at worst.
  double WorstOfDv() const;

 private:
  struct Row {
    int64_t winner = 0;
    double p = 1;
  };
  // Of row i of head h.
  Row FindWinner(int64_t i, int64_t h);

  GradientProblem& problem_;
  std::vector<Row> rows_;  // [q_len, q_heads]
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_LARGE_SCORES_H_
