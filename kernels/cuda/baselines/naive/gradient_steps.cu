#include <cmath>
#include <cstdint>

#include "kernels/cuda/baselines/baseline_score.cuh"
#include "kernels/cuda/baselines/naive/gradient_steps.h"
#include "kernels/cuda/baselines/naive/row_steps.cuh"
#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/tile/element.cuh"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda {
namespace {

// What the kernels below know of one row of the problem. All threads of a block
// have the same.
struct GradientRow {
  const DeviceProblem& p;
  const DeviceGradients& g;
  RowPlace at;
  Sequence sequence;

  __device__ GradientRow(const std::byte* blob, const NaiveGradientRows& x,
                         int64_t row)
      : p(*At<DeviceProblem>(blob, x.problem)),
        g(*At<DeviceGradients>(blob, x.gradients)),
        at(PlaceOf(p, row)),
        sequence(MakeSequence(blob, p, at.b)) {}

  // -inf past the sequence's length, where nothing may be read.
  __device__ float Lse() const {
    return at.i < sequence.q_len ? at.In(g.lse) : kMinusInfinity;
  }
  // The same value for all threads of the block, which all call it: of memory
  // that somebody writes each might read another.
  __device__ float SameLse() const {
    __shared__ float lse;  // written by thread 0
    if (threadIdx.x == 0) lse = Lse();
    __syncthreads();  // thread 0 has written it
    const float same = lse;
    __syncthreads();  // all threads have read; the next row's may be written
    return same;
  }
  // delta, as given or by (E11). For all threads of the block.
  __device__ float Delta() const {
    if (g.delta.data != nullptr) return at.In(g.delta);
    float dot = 0.0f;
    for (int d = threadIdx.x; d < p.value_dim; d += kRowThreads)
      dot += LoadAny(g.d_o.data, g.d_o.dtype, at.In(g.d_o) + d) *
             LoadAny(g.o.data, g.o.dtype, at.In(g.o) + d);
    return Reduce(dot, [](float a, float b) { return a + b; });
  }
};

// In the kernels below matrices are [rows, columns], with rows x.pitch elements
// apart, f32 unless they are of T. naive_backward.h names them and the steps.

// x.delta and x.l, [rows], see LaunchRowTerms.
__global__ void RowTerms(const __grid_constant__ LaunchParams params,
                         const NaiveGradientRows x) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const GradientRow r(BlobOf(params), x, row);
    const float lse = r.SameLse();
    float delta = 0.0f, l = INFINITY;
    if (lse != kMinusInfinity) {
      delta = r.Delta();
      if (r.g.d_lse.data != nullptr) delta -= r.at.In(r.g.d_lse);
      // l undoes the shift by m, whatever m is. No score exceeds its row's LSE
      // but by rounding; where m does, l is 1, so that P does not exceed 1.
      if (x.l != nullptr && x.m[row] != kMinusInfinity)
        l = lse < x.m[row] ? 1.0f : expf(lse - x.m[row]);
    }
    if (threadIdx.x != 0) continue;
    x.delta[row] = delta;
    if (x.l != nullptr) x.l[row] = l;
  }
}

// (E12)
__device__ float Probability(float score, float lse) {
  return expf(AtMostLse(score, lse) - lse);
}

// (E12): P from the products Q K^T.
template <class T>
__global__ void Probabilities(const __grid_constant__ LaunchParams params,
                              const NaiveGradientRows x, const float* products,
                              T* p) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const GradientRow r(BlobOf(params), x, row);
    const Scores scores(r.p, r.at.b, r.at.h);
    const float lse = r.Lse();
    const float* dots = products + row * x.pitch;
    T* to = p + row * x.pitch;
    ForSeenColumns(
        r.sequence, r.at.i, lse == kMinusInfinity, 0.0f,
        [&](int64_t j) { return dots[j]; },
        [&](float dot, int64_t j) {
          return Probability(scores(dot, r.at.i, j), lse);
        },
        [&](int64_t j, float value) { to[j] = FromFloat<T>(value); });
  }
}

// (E15) and (E16): dX from the products Q K^T and dP.
template <class T>
__global__ void ScoreGradient(const __grid_constant__ LaunchParams params,
                              const NaiveGradientRows x, const float* products,
                              const float* dps, T* dx) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const GradientRow r(BlobOf(params), x, row);
    const Scores scores(r.p, r.at.b, r.at.h);
    const float lse = r.Lse(), delta = x.delta[row];
    const float* dots = products + row * x.pitch;
    const float* from = dps + row * x.pitch;
    T* to = dx + row * x.pitch;
    ForSeenColumns(
        r.sequence, r.at.i, lse == kMinusInfinity, 0.0f,
        [&](int64_t j) {
          return float2{dots[j], LoadSeen(from, j)};
        },
        [&](float2 loaded, int64_t j) {
          const float dot = loaded.x, dp = loaded.y;
          const float p = Probability(scores(dot, r.at.i, j), lse);
          return p * (dp - delta) * scores.Slope(dot);
        },
        [&](int64_t j, float value) { to[j] = FromFloat<T>(value); });
  }
}

// Step 7': dE = dP / l, and 0 where the row does not see the column.
__global__ void DivideGradient(const __grid_constant__ LaunchParams params,
                               const NaiveGradientRows x, const float* dp,
                               float* de) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const GradientRow r(BlobOf(params), x, row);
    const float l = x.l[row];
    const float* from = dp + row * x.pitch;
    float* to = de + row * x.pitch;
    ForSeenColumns(
        r.sequence, r.at.i, l == INFINITY, 0.0f,
        [&](int64_t j) { return from[j]; },
        [&](float dp, int64_t) { return dp / l; },
        [&](int64_t j, float value) { to[j] = value; });
  }
}

// Step 6': dE += dl, which is the same for a whole row.
__global__ void SumGradient(const NaiveGradientRows x, float* de) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const float dl = -x.delta[row] / x.l[row];
    float* to = de + row * x.pitch;
    ForColumns(
        x.columns, [&](int64_t j) { return to[j] + dl; },
        [&](int64_t j, float value) { to[j] = value; });
  }
}

// Step 5': dD = dE E.
__global__ void ExpGradient(const NaiveGradientRows x, const float* de,
                            const float* e, float* dd) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const int64_t first = row * x.pitch;
    ForColumns(
        x.columns, [&](int64_t j) { return de[first + j] * e[first + j]; },
        [&](int64_t j, float value) { dd[first + j] = value; });
  }
}

// Step 2', (E16): dX from dS; with a softcap also from the products Q K^T.
template <class T>
__global__ void ScaleGradient(const __grid_constant__ LaunchParams params,
                              const NaiveGradientRows x, const float* products,
                              const float* ds, T* dx) {
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const GradientRow r(BlobOf(params), x, row);
    const Scores scores(r.p, r.at.b, r.at.h);
    const float* from = ds + row * x.pitch;
    const float* dots = products + row * x.pitch;
    T* to = dx + row * x.pitch;
    const auto store = [&](int64_t j, float value) {
      to[j] = FromFloat<T>(value);
    };
    if (r.p.softcap == 0.0f) {
      ForColumns(
          x.columns, [&](int64_t j) { return from[j]; }, store);
    } else {
      ForSeenColumns(
          r.sequence, r.at.i, /*is_empty=*/false, 0.0f,
          [&](int64_t j) {
            return float2{dots[j], from[j]};
          },
          [&](float2 loaded, int64_t) {
            return loaded.y * scores.Slope(loaded.x);
          },
          store);
    }
  }
}

// Calls launch(T{}) with the type T that `dtype` names.
template <class Launch>
cudaError_t ByType(DType dtype, Launch launch) {
  switch (dtype) {
    case DType::kF32:
      launch(float{});
      break;
    case DType::kF16:
      launch(__half{});
      break;
    case DType::kBF16:
      launch(__nv_bfloat16{});
      break;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchRowTerms(const LaunchParams& params,
                           const NaiveGradientRows& x, cudaStream_t stream) {
  RowTerms<<<RowBlocks(x.rows), kRowThreads, 0, stream>>>(params, x);
  return cudaGetLastError();
}

cudaError_t LaunchProbabilities(const LaunchParams& params,
                                const NaiveGradientRows& x,
                                const float* products, void* p,
                                cudaStream_t stream) {
  return ByType(x.dtype, [&]<class T>(T) {
    Probabilities<<<RowBlocks(x.rows), kRowThreads, 0, stream>>>(
        params, x, products, static_cast<T*>(p));
  });
}

cudaError_t LaunchScoreGradient(const LaunchParams& params,
                                const NaiveGradientRows& x,
                                const float* products, const float* dp,
                                void* dx, cudaStream_t stream) {
  return ByType(x.dtype, [&]<class T>(T) {
    ScoreGradient<<<RowBlocks(x.rows), kRowThreads, 0, stream>>>(
        params, x, products, dp, static_cast<T*>(dx));
  });
}

cudaError_t LaunchDivideGradient(const LaunchParams& params,
                                 const NaiveGradientRows& x, const float* dp,
                                 float* de, cudaStream_t stream) {
  DivideGradient<<<RowBlocks(x.rows), kRowThreads, 0, stream>>>(params, x, dp,
                                                                de);
  return cudaGetLastError();
}

cudaError_t LaunchSumGradient(const NaiveGradientRows& x, float* de,
                              cudaStream_t stream) {
  SumGradient<<<RowBlocks(x.rows), kRowThreads, 0, stream>>>(x, de);
  return cudaGetLastError();
}

cudaError_t LaunchExpGradient(const NaiveGradientRows& x, const float* de,
                              const float* e, float* dd, cudaStream_t stream) {
  ExpGradient<<<RowBlocks(x.rows), kRowThreads, 0, stream>>>(x, de, e, dd);
  return cudaGetLastError();
}

cudaError_t LaunchScaleGradient(const LaunchParams& params,
                                const NaiveGradientRows& x,
                                const float* products, const float* ds,
                                void* dx, cudaStream_t stream) {
  return ByType(x.dtype, [&]<class T>(T) {
    ScaleGradient<<<RowBlocks(x.rows), kRowThreads, 0, stream>>>(
        params, x, products, ds, static_cast<T*>(dx));
  });
}

}  // namespace attnd::cuda
