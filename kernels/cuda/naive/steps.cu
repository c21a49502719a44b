#include <algorithm>

#include "kernels/cuda/baseline_score.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/naive/steps.h"
#include "kernels/cuda/sequence.h"

namespace attnd::cuda {
namespace {

constexpr int kThreads = 128;  // of a block, which has a row at a time

// Which row of the problem a row of the matrices is.
struct RowPlace {
  int64_t b, h, i;
};
__device__ RowPlace PlaceOf(const DeviceProblem& p, int64_t row) {
  return {row / p.q_len / p.q_heads, row / p.q_len % p.q_heads, row % p.q_len};
}

// `value` of all threads combined, for all threads.
template <class Combine>
__device__ float Reduce(float value, Combine combine) {
  __shared__ float of_warp[kThreads / 32];
  for (int lane = 16; lane > 0; lane /= 2)
    value = combine(value, __shfl_xor_sync(~0u, value, lane));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();  // each warp has written its value; all read them
  value = of_warp[0];
  for (int warp = 1; warp < kThreads / 32; ++warp)
    value = combine(value, of_warp[warp]);
  __syncthreads();  // all have read; the next row's may be written
  return value;
}

__global__ void Scale(const __grid_constant__ LaunchParams params,
                      const NaiveMatrices x) {
  const std::byte* blob = BlobOf(params);
  const DeviceProblem& p = *At<DeviceProblem>(blob, x.problem);
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const RowPlace at = PlaceOf(p, row);
    const Sequence sequence = MakeSequence(blob, p, at.b);
    const Scores scores(p, at.b, at.h);
    for (int n = 0; n < p.num_segments; ++n) {
      const DeviceSegment& segment = sequence.segment(n);
      Interval seen;
      if (at.i < sequence.q_len) seen = sequence.Intervals(n).Row(at.i);
      float* s = x.s + row * x.pitch + segment.bias_column;
      for (int64_t j = threadIdx.x; j < segment.len; j += kThreads) {
        // Volatile, or padding is loaded too, which no product has written.
        const volatile float* product = s + j;
        s[j] = j >= seen.lo && j < seen.hi
                   ? scores(*product, at.i, segment.bias_column + j)
                   : kMinusInfinity;
      }
    }
  }
}

__global__ void RowMax(const NaiveMatrices x) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const float* s = x.s + row * x.pitch;
    float m = kMinusInfinity;
#pragma unroll 4
    for (int64_t j = threadIdx.x; j < x.columns; j += kThreads)
      m = MaxOrNan(m, s[j]);
    m = Reduce(m, [](float a, float b) { return MaxOrNan(a, b); });
    if (threadIdx.x == 0) x.m[row] = m;
  }
}

// An empty row stays: -inf - -inf would be NaN.
__global__ void Subtract(const NaiveMatrices x) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const float m = x.m[row];
    if (m == kMinusInfinity) continue;
    float* s = x.s + row * x.pitch;
#pragma unroll 4
    for (int64_t j = threadIdx.x; j < x.columns; j += kThreads) s[j] -= m;
  }
}

__global__ void Exp(const NaiveMatrices x) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    float* s = x.s + row * x.pitch;
#pragma unroll 4
    for (int64_t j = threadIdx.x; j < x.columns; j += kThreads)
      s[j] = expf(s[j]);
  }
}

__global__ void RowSum(const NaiveMatrices x) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const float* s = x.s + row * x.pitch;
    float l = 0.0f;
#pragma unroll 4
    for (int64_t j = threadIdx.x; j < x.columns; j += kThreads) l += s[j];
    l = Reduce(l, [](float a, float b) { return a + b; });
    if (threadIdx.x == 0) x.l[row] = l;
  }
}

template <class T>
__global__ void Divide(const __grid_constant__ LaunchParams params,
                       const NaiveMatrices x) {
  const DeviceProblem& p = *At<DeviceProblem>(BlobOf(params), x.problem);
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const float m = x.m[row], l = x.l[row];
    const bool empty = m == kMinusInfinity;
    const float* s = x.s + row * x.pitch;
    T* to = static_cast<T*>(x.p) + row * x.pitch;
#pragma unroll 4
    for (int64_t j = threadIdx.x; j < x.columns; j += kThreads)
      to[j] = FromFloat<T>(empty ? 0.0f : s[j] / l);
    if (p.lse.data != nullptr && threadIdx.x == 0) {
      const RowPlace at = PlaceOf(p, row);
      p.lse.data[at.b * p.lse.batch_stride + at.h * p.lse.head_stride + at.i] =
          empty ? kMinusInfinity : m + logf(l);  // (E7)
    }
  }
}

__global__ void FinishOutput(const __grid_constant__ LaunchParams params,
                             const NaiveMatrices x) {
  const std::byte* blob = BlobOf(params);
  const DeviceProblem& p = *At<DeviceProblem>(blob, x.problem);
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const RowPlace at = PlaceOf(p, row);
    const Sequence sequence = MakeSequence(blob, p, at.b);
    const bool zero = at.i >= sequence.q_len || sequence.kv_len == 0;
    if (!zero && x.o == nullptr) continue;
    const int64_t to = at.b * p.o.batch_stride + at.i * p.o.token_stride +
                       at.h * p.o.head_stride;
    for (int d = threadIdx.x; d < p.value_dim; d += kThreads)
      StoreAny(p.o.data, p.o.dtype, to + d,
               zero ? 0.0f : x.o[row * p.value_dim + d]);
  }
}

unsigned Blocks(const NaiveMatrices& x) {
  return static_cast<unsigned>(std::min<int64_t>(x.rows, int64_t{1} << 30));
}

cudaError_t LaunchDivide(const LaunchParams& params, const NaiveMatrices& x,
                         cudaStream_t stream) {
  switch (x.dtype) {
    case DType::kF32:
      Divide<float><<<Blocks(x), kThreads, 0, stream>>>(params, x);
      break;
    case DType::kF16:
      Divide<__half><<<Blocks(x), kThreads, 0, stream>>>(params, x);
      break;
    case DType::kBF16:
      Divide<__nv_bfloat16><<<Blocks(x), kThreads, 0, stream>>>(params, x);
      break;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchNaiveStep(NaiveStep step, const LaunchParams& params,
                            const NaiveMatrices& x, cudaStream_t stream) {
  switch (step) {
    case NaiveStep::kScale:
      Scale<<<Blocks(x), kThreads, 0, stream>>>(params, x);
      break;
    case NaiveStep::kRowMax:
      RowMax<<<Blocks(x), kThreads, 0, stream>>>(x);
      break;
    case NaiveStep::kSubtract:
      Subtract<<<Blocks(x), kThreads, 0, stream>>>(x);
      break;
    case NaiveStep::kExp:
      Exp<<<Blocks(x), kThreads, 0, stream>>>(x);
      break;
    case NaiveStep::kRowSum:
      RowSum<<<Blocks(x), kThreads, 0, stream>>>(x);
      break;
    case NaiveStep::kDivide:
      return LaunchDivide(params, x, stream);
  }
  return cudaGetLastError();
}

cudaError_t LaunchFinishOutput(const LaunchParams& params,
                               const NaiveMatrices& x, cudaStream_t stream) {
  FinishOutput<<<Blocks(x), kThreads, 0, stream>>>(params, x);
  return cudaGetLastError();
}

}  // namespace attnd::cuda
