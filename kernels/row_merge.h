#ifndef ATTND_KERNELS_ROW_MERGE_H_
#define ATTND_KERNELS_ROW_MERGE_H_

// How a row's results over several sets of columns are put together.

#include <cmath>
#include <limits>

namespace attnd {

// O = weight * a + weight_before * (O before), where a is l times O over the
// columns.
struct RowMerge {
  float lse = 0, weight = 0, weight_before = 0;
};

// (E19), (E20), from the m and l that the columns have left (E8) and the LSE
// before. An l of 0 and a `before` of -inf: nothing was seen there, and what O
// holds there does not count. Both exponents are at most 0, and the weights are
// divided by their own sum: LSE may be too large for the logarithm of that sum
// to show in it. A merge's error is mostly that of its weights. Therefore they
// take m and l rather than the LSE that these would be rounded to, and are
// computed in double, as there is one pair to a row.
inline RowMerge MergeRow(float m, float l, float before) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  if (l == 0) return {before, 0, 1};
  if (before == kNothing) return {m + std::log(l), 1 / l, 0};  // as if alone
  const bool more = m >= before;
  const double difference = double{m} - double{before};
  const double less = std::exp(more ? -difference : difference);
  const double sum = more ? l + less : l * less + 1;
  return {static_cast<float>((more ? m : before) + std::log(sum)),
          static_cast<float>((more ? 1 : less) / sum),
          static_cast<float>((more ? less : 1) / sum)};
}

// The same where only O and LSE are left of the columns.
inline RowMerge MergeRow(float lse, float before) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  return MergeRow(lse, lse == kNothing ? 0.0f : 1.0f, before);
}

// The same of any number of results, by the same formula: what MergeRow takes
// from the larger LSE this takes from the largest of all, whose share of the
// sum is 1 likewise, so that no exponent is above 0. Each result is seen first,
// then each is added, in an order on which bits depend, then each is weighed.
// Of what has seen nothing none need be added, and none may be weighed.
class RowMerger {
 public:
  static constexpr float kNothing = -std::numeric_limits<float>::infinity();

  void See(float lse) { most_ = lse > most_ ? lse : most_; }
  void Add(float lse) {
    if (lse != kNothing) sum_ += Share(lse);
  }
  // -inf if nothing was seen by any.
  float lse() const {
    return sum_ == 0 ? kNothing : static_cast<float>(most_ + std::log(sum_));
  }
  // What O counts for of which this is the LSE.
  double Weight(float lse) const { return Share(lse) / sum_; }

 private:
  double Share(float lse) const {
    return std::exp(double{lse} - double{most_});
  }

  float most_ = kNothing;
  double sum_ = 0;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_ROW_MERGE_H_
