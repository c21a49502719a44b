#ifndef ATTND_MERGE_H_
#define ATTND_MERGE_H_

// Exact attention over shards of K and V. Call Forward once per shard, with
// kv_start where the shard begins, and merge:
//
//   LSE = ln sum_i exp(LSE_i)        O = sum_i exp(LSE_i - LSE) O_i
//
// Ask for partial outputs in f32, so that merging loses nothing.

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attnd/client.h"

namespace attnd::client {

// What Forward gives for one shard.
struct Partial {
  ConstTensor o;    // [batch, q_len, q_heads, value_dim], f32, f16 or bf16
  ConstTensor lse;  // [batch, q_heads, q_len], f32
};

// Merges `partials`, any number of them, in their order: the same partials
// give the same bits. Shapes are as for Layout::kBshd; Layout::kBhsd has o as
// [batch, q_heads, q_len, value_dim], Layout::kPacked o as [total_q, q_heads,
// value_dim] and lse as [q_heads, total_q]. All partials and `o` have one
// shape; types may differ. Sums are in f64, rounded once to `o`'s type.
//
// A row that is empty in a partial (LSE = -inf) takes nothing from it; empty in
// all, or merged from no partials, it is empty: O = 0, LSE = -inf. `lse` may be
// absent. The outputs may be a partial's own memory, if of the same type, and
// may overlap other inputs in no other way. Thread-compatible; blocks for as
// long as it computes. INVALID_ARGUMENT names what does not fit.
absl::Status MergePartials(absl::Span<const Partial> partials, Layout layout,
                           const Tensor& o, const Tensor& lse);

}  // namespace attnd::client

#endif  // ATTND_MERGE_H_
