#ifndef ATTND_KERNELS_ROW_MERGE_H_
#define ATTND_KERNELS_ROW_MERGE_H_

// How a row's results over several sets of columns are put together.

#include <cmath>
#include <limits>

namespace attnd {

// O = weight * (O over the columns) + weight_before * (O before).
struct RowMerge {
  float lse = 0, weight = 0, weight_before = 0;
};

// (E19), (E20). -inf: nothing was seen there, and what O holds there does not
// count. Both exponents are at most 0, and the weights are divided by their own
// sum: LSE may be too large for the logarithm of that sum to show in it.
inline RowMerge MergeRow(float lse, float before) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  if (before == kNothing) return {lse, 1, 0};
  if (lse == kNothing) return {before, 0, 1};
  const bool more = lse >= before;
  const float less = std::exp(more ? before - lse : lse - before);
  const float sum = 1 + less;
  return {(more ? lse : before) + std::log(sum), (more ? 1 : less) / sum,
          (more ? less : 1) / sum};
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
  float lse() const { return sum_ == 0 ? kNothing : most_ + std::log(sum_); }
  // What O counts for of which this is the LSE.
  float Weight(float lse) const { return Share(lse) / sum_; }

 private:
  float Share(float lse) const { return std::exp(lse - most_); }

  float most_ = kNothing, sum_ = 0;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_ROW_MERGE_H_
