#ifndef ATTND_KERNELS_CUDA_TILE_ROW_BEFORE_CUH_
#define ATTND_KERNELS_CUDA_TILE_ROW_BEFORE_CUH_

// How a row's results are merged with those over other columns that its problem
// has of it (ForwardArgs::before): as row_merge.h does it on a host.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda {

// LSE over both sets of columns. O is weight * (O over the launch's columns, or
// what MergeBefore says) + weight_before * before, f32[value_dim]. Null: O is
// not wanted, or nothing is to be added to it.
struct RowMerge {
  float lse;
  float weight = 1.0f, weight_before = 0.0f;
  const float* before = nullptr;
};

// LSE that row `row` of q head h of the sequence has before. -inf: it has
// nothing.
__device__ inline float LseBefore(const Sequence& s, int64_t h, int64_t row) {
  if (s.problem->before == 0) return -INFINITY;
  const auto& lse = At<DeviceState>(s.blob, s.problem->before)->lse;
  return lse.data[s.b * lse.batch_stride + h * lse.head_stride + row];
}

// (E19), (E20), for that row, from its LSE over the launch's columns and
// `before`, its LseBefore. -inf: nothing was seen there, and O does not count.
// Both exponents are at most 0. The weights are as exact as 16-bit results
// need.
__device__ inline RowMerge MergeWith(const Sequence& s, int64_t h, int64_t row,
                                     float lse, float before) {
  if (before == -INFINITY) return {lse};
  RowMerge merge{before, 0.0f, 1.0f};
  if (lse != -INFINITY) {
    const bool more = lse >= before;
    const float less = expf(more ? before - lse : lse - before);
    const float sum = 1.0f + less;
    merge.lse = (more ? lse : before) + logf(sum);
    merge.weight = (more ? 1.0f : less) / sum;
    merge.weight_before = (more ? less : 1.0f) / sum;
  }
  if (s.problem->o.data != nullptr && merge.weight_before != 0.0f) {
    const auto& o = At<DeviceState>(s.blob, s.problem->before)->o;
    merge.before = static_cast<const float*>(o.data) + s.b * o.batch_stride +
                   h * o.head_stride + row * o.token_stride;
  }
  return merge;
}

// The same where LseBefore has not been asked for.
__device__ inline RowMerge MergeBefore(const Sequence& s, int64_t h,
                                       int64_t row, float lse) {
  return MergeWith(s, h, row, lse, LseBefore(s, h, row));
}

// The same from m and l, (E8), as exact as f32 results need: row_merge.h says
// how. An l of 0: nothing was seen. Where `before` is not null, the weight is
// of l times O.
__device__ inline RowMerge MergeBefore(const Sequence& s, int64_t h,
                                       int64_t row, float m, float l) {
  const float before = LseBefore(s, h, row);
  RowMerge merge =
      MergeWith(s, h, row, l == 0.0f ? -INFINITY : m + logf(l), before);
  if (l == 0.0f || before == -INFINITY) return merge;
  const bool more = m >= before;
  const double difference = static_cast<double>(m) - before;
  const double less = exp(more ? -difference : difference);
  if (more && less == 0.0) {  // what was seen before does not count
    merge.before = nullptr;
    return merge;
  }
  const double sum = more ? l + less : l * less + 1.0;
  merge.lse = static_cast<float>((more ? m : before) + log(sum));
  merge.weight = static_cast<float>((more ? 1.0 : less) / sum);
  merge.weight_before = static_cast<float>((more ? less : 1.0) / sum);
  return merge;
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_ROW_BEFORE_CUH_
