#ifndef ATTND_TESTS_BENCH_STATS_H_
#define ATTND_TESTS_BENCH_STATS_H_

// Order statistics of timings, in whatever unit they are.

#include <algorithm>
#include <cmath>
#include <vector>

namespace attnd::bench {

// The smallest value with at least `share` of all values at or below it.
inline double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return NAN;
  const auto rank = static_cast<size_t>(std::ceil(share * values.size()));
  auto at = values.begin() + std::clamp<size_t>(rank, 1, values.size()) - 1;
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

inline double Median(std::vector<double> values) {
  return Quantile(std::move(values), 0.5);
}

inline void Append(const std::vector<double>& from, std::vector<double>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

// The median of a[i] / b[i], timings made side by side: what the machine did
// to both cancels.
inline double MedianRatio(const std::vector<double>& a,
                          const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    ratios.push_back(a[i] / b[i]);
  }
  return Median(std::move(ratios));
}

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_STATS_H_
