#include <cstdint>

#include "kernels/cuda/baselines/baseline_score.cuh"
#include "kernels/cuda/baselines/naive/row_steps.cuh"
#include "kernels/cuda/baselines/naive/steps.h"
#include "kernels/cuda/tile/element.cuh"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda {
namespace {

// In the kernels below `from` and `to` are matrices [rows, columns] whose rows
// lie x.pitch elements apart, f32 unless said otherwise. They may be the same.

// (E1), (E2): scores from products, -inf in columns that a row does not see.
__global__ void Scale(const __grid_constant__ LaunchParams params,
                      const NaiveRows x, const float* from, float* to) {
  const std::byte* blob = BlobOf(params);
  const DeviceProblem& p = *At<DeviceProblem>(blob, x.problem);
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const RowPlace at = PlaceOf(p, row);
    const Sequence sequence = MakeSequence(blob, p, at.b);
    const Scores scores(p, at.b, at.h);
    const float* products = from + row * x.pitch;
    float* s = to + row * x.pitch;
    ForSeenColumns(
        sequence, at.i, /*is_empty=*/false, kMinusInfinity,
        [&](int64_t j) { return LoadSeen(products, j); },
        [&](float product, int64_t j) { return scores(product, at.i, j); },
        [&](int64_t j, float score) { s[j] = score; });
  }
}

// (E3): x.m, [rows].
__global__ void RowMax(const NaiveRows x, const float* from) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const float* s = from + row * x.pitch;
    float m = kMinusInfinity;
#pragma unroll 4
    for (int64_t j = threadIdx.x; j < x.columns; j += kRowThreads)
      m = MaxOrNan(m, s[j]);
    m = Reduce(m, [](float a, float b) { return MaxOrNan(a, b); });
    if (threadIdx.x == 0) x.m[row] = m;
  }
}

// S - m, as (E4) needs it. An empty row stays -inf: -inf - -inf would be NaN.
__global__ void Subtract(const NaiveRows x, const float* from, float* to) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const float m = x.m[row] == kMinusInfinity ? 0.0f : x.m[row];
    const float* s = from + row * x.pitch;
    float* less = to + row * x.pitch;
    ForColumns(
        x.columns, [&](int64_t j) { return s[j] - m; },
        [&](int64_t j, float value) { less[j] = value; });
  }
}

// exp(S - m), as (E4) needs it.
__global__ void Exp(const NaiveRows x, const float* from, float* to) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const float* s = from + row * x.pitch;
    float* e = to + row * x.pitch;
    ForColumns(
        x.columns, [&](int64_t j) { return expf(s[j]); },
        [&](int64_t j, float value) { e[j] = value; });
  }
}

// (E4): x.l, [rows].
__global__ void RowSum(const NaiveRows x, const float* from) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const float* s = from + row * x.pitch;
    float l = 0.0f;
#pragma unroll 4
    for (int64_t j = threadIdx.x; j < x.columns; j += kRowThreads) l += s[j];
    l = Reduce(l, [](float a, float b) { return a + b; });
    if (threadIdx.x == 0) x.l[row] = l;
  }
}

// (E5): P, rounded to T in `to`; and LSE. Empty rows have P = 0.
template <class T>
__global__ void Divide(const __grid_constant__ LaunchParams params,
                       const NaiveRows x, const float* from, T* to) {
  const DeviceProblem& p = *At<DeviceProblem>(BlobOf(params), x.problem);
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const float m = x.m[row], l = x.l[row];
    const bool empty = m == kMinusInfinity;
    const float* e = from + row * x.pitch;
    T* probabilities = to + row * x.pitch;
    ForColumns(
        x.columns, [&](int64_t j) { return empty ? 0.0f : e[j] / l; },
        [&](int64_t j, float value) {
          probabilities[j] = FromFloat<T>(value);
        });
    if (p.lse.data != nullptr && threadIdx.x == 0)
      PlaceOf(p, row).In(p.lse) = empty ? kMinusInfinity : m + logf(l);  // (E7)
  }
}

// See LaunchFinish. A row here is one token of one head of one sequence.
__global__ void Finish(const __grid_constant__ LaunchParams params,
                       const UnfinishedTokens x, int64_t rows) {
  const std::byte* blob = BlobOf(params);
  const DeviceProblem& p = *At<DeviceProblem>(blob, x.problem);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t head = row / x.tokens, token = row % x.tokens;
    const int64_t b = head / x.heads, h = head % x.heads;
    const Sequence sequence = MakeSequence(blob, p, b);
    const int64_t len =
        x.segment < 0 ? sequence.q_len : sequence.Len(x.segment);
    const bool zero =
        token >= len || sequence.q_len == 0 || sequence.kv_len == 0;
    if (!zero && x.sums == nullptr) continue;
    const int64_t to = b * x.to.batch_stride + token * x.to.token_stride +
                       h * x.to.head_stride;
    for (int64_t d = threadIdx.x; d < x.dim; d += kRowThreads)
      StoreAny(x.to.data, x.to.dtype, to + d,
               zero ? 0.0f : x.sums[row * x.dim + d]);
  }
}

cudaError_t LaunchDivide(const LaunchParams& params, const NaiveRows& x,
                         const float* from, void* to, cudaStream_t stream) {
  const unsigned blocks = RowBlocks(x.rows);
  switch (x.dtype) {
    case DType::kF32:
      Divide<<<blocks, kRowThreads, 0, stream>>>(params, x, from,
                                                 static_cast<float*>(to));
      break;
    case DType::kF16:
      Divide<<<blocks, kRowThreads, 0, stream>>>(params, x, from,
                                                 static_cast<__half*>(to));
      break;
    case DType::kBF16:
      Divide<<<blocks, kRowThreads, 0, stream>>>(
          params, x, from, static_cast<__nv_bfloat16*>(to));
      break;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchNaiveStep(NaiveStep step, const LaunchParams& params,
                            const NaiveRows& x, const float* from, void* to,
                            cudaStream_t stream) {
  const unsigned blocks = RowBlocks(x.rows);
  float* const floats = static_cast<float*>(to);
  switch (step) {
    case NaiveStep::kScale:
      Scale<<<blocks, kRowThreads, 0, stream>>>(params, x, from, floats);
      break;
    case NaiveStep::kRowMax:
      RowMax<<<blocks, kRowThreads, 0, stream>>>(x, from);
      break;
    case NaiveStep::kSubtract:
      Subtract<<<blocks, kRowThreads, 0, stream>>>(x, from, floats);
      break;
    case NaiveStep::kExp:
      Exp<<<blocks, kRowThreads, 0, stream>>>(x, from, floats);
      break;
    case NaiveStep::kRowSum:
      RowSum<<<blocks, kRowThreads, 0, stream>>>(x, from);
      break;
    case NaiveStep::kDivide:
      return LaunchDivide(params, x, from, to, stream);
  }
  return cudaGetLastError();
}

cudaError_t LaunchFinish(const LaunchParams& params,
                         const UnfinishedTokens& unfinished, int64_t batch,
                         cudaStream_t stream) {
  const int64_t rows = batch * unfinished.heads * unfinished.tokens;
  Finish<<<RowBlocks(rows), kRowThreads, 0, stream>>>(params, unfinished, rows);
  return cudaGetLastError();
}

}  // namespace attnd::cuda
