#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_ROW_STEPS_CUH_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_ROW_STEPS_CUH_

// What the kernels of naive attention share. A block of threads has one row of
// the matrices at a time, and goes on with the row gridDim.x further on.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/baselines/naive/steps.h"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda {

inline constexpr int kRowThreads = 128;

// How many blocks of threads to launch for as many rows: one for each row, as
// far as a grid allows.
inline unsigned RowBlocks(int64_t rows) {
  return static_cast<unsigned>(std::min<int64_t>(rows, int64_t{1} << 30));
}

// Which row of the problem a row of the matrices is: row i of sequence b and q
// head h.
struct RowPlace {
  int64_t b, h, i;

  __device__ int64_t In(const ConstTensorView& t) const {
    return b * t.batch_stride + h * t.head_stride + i * t.token_stride;
  }
  template <class Float>
  __device__ Float& In(const BasicRowView<Float>& r) const {
    return r.data[b * r.batch_stride + h * r.head_stride + i];
  }
};
__device__ inline RowPlace PlaceOf(const DeviceProblem& p, int64_t row) {
  return {row / p.q_len / p.q_heads, row / p.q_len % p.q_heads, row % p.q_len};
}

// Combines `value` of all threads of the block, and gives all of them the
// result.
template <class Combine>
__device__ float Reduce(float value, Combine combine) {
  __shared__ float of_warp[kRowThreads / 32];  // written by each warp's lane 0
  for (int lane = 16; lane > 0; lane /= 2)
    value = combine(value, __shfl_xor_sync(~0u, value, lane));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();  // each warp has written its value
  value = of_warp[0];
  for (int warp = 1; warp < kRowThreads / 32; ++warp)
    value = combine(value, of_warp[warp]);
  __syncthreads();  // all threads have read; the next row's may be written
  return value;
}

// How many columns each thread loads at once.
inline constexpr int kColumnsAtOnce = 4;

// Calls store(j, compute(j)) for every column j of a row. It may store where
// `compute` has loaded from, at the same column.
template <class Compute, class Store>
__device__ void ForColumns(int64_t columns, Compute compute, Store store) {
  for (int64_t first = threadIdx.x; first < columns;
       first += kColumnsAtOnce * kRowThreads) {
    float values[kColumnsAtOnce] = {};
#pragma unroll
    for (int n = 0; n < kColumnsAtOnce; ++n) {
      const int64_t j = first + n * kRowThreads;
      if (j < columns) values[n] = compute(j);
    }
#pragma unroll
    for (int n = 0; n < kColumnsAtOnce; ++n) {
      const int64_t j = first + n * kRowThreads;
      if (j < columns) store(j, values[n]);
    }
  }
}

// Calls store(j, compute(load(j), j)) for the columns j that row i sees, and
// store(j, unseen) for all others; if is_empty, the row sees none. Columns
// count the tokens of all segments. It may store where `load` has loaded from,
// at the same column.
template <class Load, class Compute, class Store>
__device__ void ForSeenColumns(const Sequence& sequence, int64_t i,
                               bool is_empty, float unseen, Load load,
                               Compute compute, Store store) {
  for (int n = 0; n < sequence.problem->num_segments; ++n) {
    const DeviceSegment& segment = sequence.segment(n);
    const int64_t column = segment.bias_column;
    Interval seen;
    if (i < sequence.q_len && !is_empty) seen = sequence.Intervals(n).Row(i);
    for (int64_t first = threadIdx.x; first < segment.len;
         first += kColumnsAtOnce * kRowThreads) {
      decltype(load(first)) loaded[kColumnsAtOnce] = {};
#pragma unroll
      for (int k = 0; k < kColumnsAtOnce; ++k) {
        const int64_t j = first + k * kRowThreads;
        if (j >= seen.lo && j < seen.hi) loaded[k] = load(column + j);
      }
#pragma unroll
      for (int k = 0; k < kColumnsAtOnce; ++k) {
        const int64_t j = first + k * kRowThreads;
        if (j >= segment.len) continue;
        store(column + j, j >= seen.lo && j < seen.hi
                              ? compute(loaded[k], column + j)
                              : unseen);
      }
    }
  }
}

// Loads what a product has written at a column that the row sees. The load is
// volatile, so that the compiler does not hoist it out of the condition:
// padding, which no product has written, must not be loaded.
__device__ inline float LoadSeen(const float* row, int64_t j) {
  return *static_cast<const volatile float*>(row + j);
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_ROW_STEPS_CUH_
