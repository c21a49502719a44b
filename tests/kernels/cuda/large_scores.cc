#include "tests/kernels/cuda/large_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnd::testing {
namespace {

void Multiply(OwnedTensor& t, double by) {
  for (int64_t i = 0; i < t.tokens(); ++i) {
    for (int64_t h = 0; h < t.heads(); ++h) {
      for (int64_t d = 0; d < t.dim(); ++d) {
        t.Set(0, i, h, d, by * t.Get(0, i, h, d));
      }
    }
  }
}

}  // namespace

LargeScores::LargeScores(double size, GradientProblem& problem)
    : problem_(problem) {
  Multiply(problem.forward.q, size);
  Multiply(problem.forward.k, size);
  for (int64_t i = 0; i < problem.d_o.tokens(); ++i) {
    for (int64_t h = 0; h < problem.d_o.heads(); ++h) {
      rows_.push_back(FindWinner(i, h));
    }
  }
}

LargeScores::Row LargeScores::FindWinner(int64_t i, int64_t h) {
  const OwnedTensor &q = problem_.forward.q, &k = problem_.forward.k;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Row row;
  double best = -kInf, gap = kInf;
  for (int64_t j = 0; j < k.tokens(); ++j) {
    double score = 0;
    for (int64_t d = 0; d < k.dim(); ++d) {
      score += q.Get(0, i, h, d) * k.Get(0, j, 0, d);
    }
    score *= problem_.problem().scale;
    if (score > best) {
      row.winner = j;
      gap = score - best;
      best = score;
    } else {
      gap = std::min(gap, best - score);
    }
  }
  // Of scores further below, P is 0 in f32.
  const double clear = std::max(110.0, 1e-3 * best);
  for (int64_t d = 0; d < problem_.d_o.dim() && gap < clear; ++d) {
    problem_.d_o.Set(0, i, h, d, 0);
  }
  return row;
}

void LargeScores::RaiseLse(float by) {
  OwnedRows& lse = problem_.forward.lse;
  const int64_t heads = problem_.d_o.heads();
  for (size_t n = 0; n < rows_.size(); ++n) {
    const int64_t i = n / heads, h = n % heads;
    const float before = lse.Get(0, h, i);
    lse.Set(0, h, i, before + by);
    rows_[n].p = std::exp(before - lse.Get(0, h, i));
  }
}

double LargeScores::WorstOfDv() const {
  const OwnedTensor& d_o = problem_.d_o;
  const int64_t dim = d_o.dim(), heads = d_o.heads();
  std::vector<double> sums(problem_.forward.k.tokens() * dim), sizes(sums);
  for (size_t n = 0; n < rows_.size(); ++n) {
    for (int64_t d = 0; d < dim; ++d) {
      const double x = rows_[n].p * d_o.Get(0, n / heads, n % heads, d);
      sums[rows_[n].winner * dim + d] += x;
      sizes[rows_[n].winner * dim + d] += std::abs(x);
    }
  }
  const std::vector<double> got = problem_.out.dv[0].Values();
  double worst = 0;
  for (size_t n = 0; n < got.size(); ++n) {
    const double off = std::abs(got[n] - sums[n]);
    if (!(off <= worst * sizes[n])) worst = off / sizes[n];
  }
  return worst;
}

}  // namespace attnd::testing
