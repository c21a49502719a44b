#ifndef ATTND_KERNELS_ROW_MERGE_H_
#define ATTND_KERNELS_ROW_MERGE_H_

// How a row's results over some columns and those over others before it are put
// together.

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

}  // namespace attnd

#endif  // ATTND_KERNELS_ROW_MERGE_H_
