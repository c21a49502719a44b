#ifndef ATTND_KERNELS_REFERENCE_MERGE_H_
#define ATTND_KERNELS_REFERENCE_MERGE_H_

// Partial results over disjoint sets of columns put together: what lets one
// attention be computed in shards, on one device or around a ring.

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention.h"

namespace attnd::reference {

// What forward gave for some of the columns.
struct Partial {
  ConstTensorView o;  // [batch, q_len, q_heads, value_dim], any type
  ConstRowView lse;   // [batch, q_heads, q_len]
};

struct MergeShape {
  int64_t batch = 0, q_len = 0, q_heads = 0, value_dim = 0;
};

// (E19), (E20): LSE is the logarithm of the sum of exp(LSE_n), O the sum of
// exp(LSE_n - LSE) O_n. An empty partial (LSE = -inf) adds nothing whatever
// its O holds; only empty ones merge to O = 0, LSE = -inf. `o` may be any type,
// `lse` null. All in double; the order of partials changes rounding only.
void Merge(const MergeShape& shape, absl::Span<const Partial> partials,
           const TensorView& o, const RowView& lse);

}  // namespace attnd::reference

#endif  // ATTND_KERNELS_REFERENCE_MERGE_H_
