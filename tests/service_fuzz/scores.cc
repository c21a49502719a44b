#include "tests/service_fuzz/scores.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <optional>

namespace attnd::fuzz {
namespace {

constexpr double kMostScore = FLT_MAX;

// 1 - tanh^2, without its cancellation.
double SlopeAt(double y) {
  const double e = std::exp(-2 * std::abs(y));
  return 4 * e / ((1 + e) * (1 + e));
}

// How far f is from f(x) within dx of x, for f monotonic on either side of 0.
template <class F>
double Spread(F f, double x, double dx) {
  const double at = f(x);
  double most = std::max(std::abs(f(x + dx) - at), std::abs(f(x - dx) - at));
  if (std::abs(x) < dx) most = std::max(most, std::abs(f(0) - at));
  return most;
}

}  // namespace

ScoreRow::ScoreRow(const Problem& problem, const reference::Head<double>& head,
                   int64_t i, const Arithmetic& arithmetic)
    : lse(-HUGE_VAL) {
  FindScores(problem, head, i, arithmetic);
  if (!seen.empty()) FindSoftmax(arithmetic);
}

void ScoreRow::FindScores(const Problem& problem,
                          const reference::Head<double>& head, int64_t i,
                          const Arithmetic& arithmetic) {
  const int64_t n = head.columns(), dim = problem.head_dim;
  for (std::vector<double>* v :
       {&score, &x_error, &slope, &slope_error, &p, &high, &low, &error}) {
    v->assign(n, 0.0);
  }
  head.Scores(i, 0, n, score.data(), slope.data());
  const double roundings = arithmetic.roundings * kF32Unit;
  const double scale = std::abs(static_cast<double>(problem.scale));
  for (int64_t j = 0; j < n; ++j) {
    if (score[j] == -HUGE_VAL) continue;
    seen.push_back(j);
    const double *q = head.q()[i], *k = head.k()[j];
    double dot = 0, magnitude = 0, unnormalized = 0;
    for (int64_t d = 0; d < dim; ++d) {
      dot += q[d] * k[d];
      magnitude += std::abs(q[d] * k[d]);
      unnormalized += arithmetic.Unnormalized(q[d], k[d]);
    }
    double x = problem.scale * dot;
    const double dot_error =
        arithmetic.Sum(dim) * magnitude + unnormalized + dim * arithmetic.least;
    x_error[j] = scale * dot_error + 3 * roundings * std::abs(x);
    const std::optional<float>& cap = problem.softcap;
    const auto capped = [&cap](double at) {
      return cap.has_value() ? *cap * std::tanh(at / *cap) : at;
    };
    // What leaves f32's range, as a product or scaled, is the largest of it,
    // and exactly so.
    const bool saturates = std::abs(dot) - dot_error > kMostScore ||
                           std::abs(x) - x_error[j] > kMostScore;
    if (saturates) {
      const double most = std::copysign(kMostScore, x);
      score[j] += capped(most) - capped(std::clamp(x, -kMostScore, kMostScore));
      x = most;
      x_error[j] = 0;
    }
    error[j] = x_error[j];
    if (cap.has_value()) {
      error[j] =
          Spread(capped, x, x_error[j]) + 4 * roundings * std::abs(capped(x));
      const auto slope_at = [&cap](double at) { return SlopeAt(at / *cap); };
      slope[j] = slope_at(x);
      slope_error[j] = Spread(slope_at, x, x_error[j]) +
                       8 * roundings * slope[j] + arithmetic.slope;
      // Where exp(-2 x) nears the least normal number it may be 0.
      if (slope[j] < 16 * kF32Normal) slope_error[j] += slope[j];
    }
    // The bias is added, which is little beside the largest score.
    if (!saturates || cap.has_value())
      error[j] += 2 * kF32Unit * (std::abs(score[j]) + std::abs(capped(x)));
  }
}

namespace {

// ln sum exp(s[j] + sign * e[j])
double LogSum(const std::vector<int64_t>& seen, const std::vector<double>& s,
              const std::vector<double>& e, double sign) {
  double most = -HUGE_VAL, sum = 0;
  for (int64_t j : seen) most = std::max(most, s[j] + sign * e[j]);
  for (int64_t j : seen) sum += std::exp(s[j] + sign * e[j] - most);
  return most + std::log(sum);
}

// The sum without its largest term, which cannot be found by subtracting.
double LogSumWithout(int64_t without, const std::vector<int64_t>& seen,
                     const std::vector<double>& s, const std::vector<double>& e,
                     double sign) {
  std::vector<int64_t> rest;
  for (int64_t j : seen)
    if (j != without) rest.push_back(j);
  return rest.empty() ? -HUGE_VAL : LogSum(rest, s, e, sign);
}

// P of each column if its score errs by `sign` and all others the other way.
std::vector<double> Shares(const std::vector<int64_t>& seen,
                           const std::vector<double>& s,
                           const std::vector<double>& e, double sign) {
  std::vector<double> shares(s.size(), 0.0);
  const int64_t top =
      *std::max_element(seen.begin(), seen.end(), [&](int64_t a, int64_t b) {
        return s[a] - sign * e[a] < s[b] - sign * e[b];
      });
  const double total = LogSum(seen, s, e, -sign);
  for (int64_t j : seen) {
    double others = total;
    if (j == top) {
      others = LogSumWithout(j, seen, s, e, -sign);
    } else if (const double part = s[j] - sign * e[j] - total; part < 0) {
      others += std::log1p(-std::exp(part));
    }
    const double own = s[j] + sign * e[j];
    shares[j] = others == -HUGE_VAL ? 1 : 1 / (1 + std::exp(others - own));
  }
  return shares;
}

}  // namespace

// The same scores, each off by as much as it may be, give P between `low` and
// `high`: whatever the size of the errors, even where scores differ by less
// than they are rounded.
void ScoreRow::FindSoftmax(const Arithmetic& arithmetic) {
  const double roundings = arithmetic.roundings * kF32Unit;
  double most = -HUGE_VAL;
  for (int64_t j : seen) most = std::max(most, score[j]);
  for (int64_t j : seen) {
    // exp() of a difference, where one above 150 gives 0 anyway; in other
    // units scores are rounded once more.
    error[j] += 2 * roundings * std::min(150.0, most - score[j]);
    if (arithmetic.roundings > 1 && std::abs(score[j]) < kMostScore)
      error[j] += roundings * std::abs(score[j]);
  }
  // All relative to the largest, beside which a sum's logarithm may be nothing.
  std::vector<double> below(score.size(), 0.0);
  for (int64_t j : seen) below[j] = score[j] - most;
  const double sum = LogSum(seen, below, error, 0);
  const double up = LogSum(seen, below, error, 1);
  const double down = LogSum(seen, below, error, -1);
  high = Shares(seen, below, error, 1);
  low = Shares(seen, below, error, -1);
  for (int64_t j : seen) {
    p[j] = std::exp(below[j] - sum);
    high[j] = std::max(p[j], high[j]);
    low[j] = std::min(p[j], low[j]);
  }
  lse = most + sum;
  lse_error = std::max(up - sum, sum - down) + arithmetic.Sum(seen.size()) +
              2 * roundings * (std::abs(lse) + std::abs(most) + 1);
}

}  // namespace attnd::fuzz
