#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_ROW_STEPS_CUH_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_ROW_STEPS_CUH_

// What the kernels of naive attention share: a block of threads has a row of
// the matrices at a time, and goes on with the rows gridDim.x further on.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/baselines/naive/steps.h"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda {

inline constexpr int kRowThreads = 128;

inline unsigned RowBlocks(int64_t rows) {
  return static_cast<unsigned>(std::min<int64_t>(rows, int64_t{1} << 30));
}

// Which row of the problem a row of the matrices is.
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

// `value` of all threads combined, for all threads.
template <class Combine>
__device__ float Reduce(float value, Combine combine) {
  __shared__ float of_warp[kRowThreads / 32];
  for (int lane = 16; lane > 0; lane /= 2)
    value = combine(value, __shfl_xor_sync(~0u, value, lane));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();  // each warp has written its value; all read them
  value = of_warp[0];
  for (int warp = 1; warp < kRowThreads / 32; ++warp)
    value = combine(value, of_warp[warp]);
  __syncthreads();  // all have read; the next row's may be written
  return value;
}

// So many columns' loads are on their way at once.
inline constexpr int kColumnsAtOnce = 4;

// store(j, compute(j)) for every column of a row. What is stored may be where
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

// store(j, compute(load(j), j)) for the columns that row i sees, none if it is
// empty, and store(j, unseen) for all others. What is stored may be where
// `load` has loaded from, at the same column.
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

// What a product has written where a row sees it. Volatile, or padding, which
// no product has written, is loaded too where it is about to be overwritten.
__device__ inline float LoadSeen(const float* row, int64_t j) {
  return *static_cast<const volatile float*>(row + j);
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_ROW_STEPS_CUH_
