#include <algorithm>
#include <cstdint>

#include "kernels/cuda/team/sum_kernels.h"
#include "kernels/cuda/tile/element.cuh"

namespace attnd::cuda {
namespace {

constexpr int kThreads = 256;

// Eight neighbouring elements of a row, or the first `count` and zeros.
template <class T>
struct Eight {
  alignas(16) T elements[8];

  __device__ void Load(const T* from, int count, bool aligned) {
    if (aligned && count >= 8) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(elements) / 16); ++i) {
        reinterpret_cast<uint4*>(elements)[i] =
            reinterpret_cast<const uint4*>(from)[i];
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      elements[i] = i < count ? from[i] : FromFloat<T>(0.0f);
    }
  }
};

// Where a row of one head begins.
template <class T>
__device__ const T* RowOf(const ConstTensorView& t, int64_t row, int64_t head) {
  return static_cast<const T*>(t.data) + row * t.token_stride +
         head * t.head_stride;
}

// (E11) of rows of one head after another, a of type T and b of type U. A power
// of two lanes share a row, eight columns each, and sum up in the order of
// rows/prepare_rows.cu.
template <class T, class U>
__global__ void __launch_bounds__(kThreads)
    Dot(const __grid_constant__ DotParams p, const int lanes_log2) {
  const int lanes = 1 << lanes_log2;
  const int thread = static_cast<int>(threadIdx.x);
  const int column = 8 * (thread & (lanes - 1));
  const int64_t row =
      int64_t{blockIdx.x} * (kThreads >> lanes_log2) + (thread >> lanes_log2);
  const int count = row < p.rows ? p.dim - column : 0;
  for (int64_t head = blockIdx.y; head < p.heads; head += gridDim.y) {
    Eight<T> x;
    Eight<U> y;
    x.Load(RowOf<T>(p.a, row, head) + column, count, p.a_aligned);
    y.Load(RowOf<U>(p.b, row, head) + column, count, p.b_aligned);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum = fmaf(ToFloat(x.elements[i]), ToFloat(y.elements[i]), sum);
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffff, sum, distance);
    }
    if (column == 0 && row < p.rows) {
      p.to.data[head * p.to.head_stride + row] = sum;
    }
  }
}

template <class T, class U>
cudaError_t Launch(const DotParams& p, cudaStream_t stream) {
  int lanes_log2 = 0;
  while (8 << lanes_log2 < p.dim) ++lanes_log2;
  const int64_t rows = kThreads >> lanes_log2;
  const int64_t blocks = (p.rows + rows - 1) / rows;
  if (blocks >= int64_t{1} << 31) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(blocks),
                  static_cast<unsigned>(std::min<int64_t>(p.heads, 65535)));
  Dot<T, U><<<grid, kThreads, 0, stream>>>(p, lanes_log2);
  return cudaGetLastError();
}

template <class T>
cudaError_t LaunchHalf(const DotParams& p, cudaStream_t stream) {
  return p.b.dtype == DType::kF32 ? Launch<T, float>(p, stream)
                                  : Launch<T, T>(p, stream);
}

}  // namespace

cudaError_t LaunchDot(const DotParams& params, cudaStream_t stream) {
  switch (params.a.dtype) {
    case DType::kF32:
      return Launch<float, float>(params, stream);
    case DType::kF16:
      return LaunchHalf<__half>(params, stream);
    case DType::kBF16:
      return LaunchHalf<__nv_bfloat16>(params, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnd::cuda
