#include <algorithm>
#include <cstdint>

#include "kernels/cuda/team/sum_kernels.h"
#include "kernels/cuda/team/word.cuh"

namespace attnd::cuda {
namespace {

constexpr int kThreads = 256;
// How many terms each thread loads at once.
constexpr int kTermsTogether = 4;

// Element `at` of row `row` and those after it.
template <int kElements>
__device__ Word<kElements> SumTerms(const SumParams& p, int64_t row, int64_t at,
                                    int64_t count) {
  Word<kElements> sum = {};
  for (int first = 0; first < p.num_terms; first += kTermsTogether) {
    Word<kElements> x[kTermsTogether];
#pragma unroll
    for (int k = 0; k < kTermsTogether; ++k) {
      if (first + k >= p.num_terms) continue;
      const SumParams::Term& term = p.terms[first + k];
      x[k].Load(term.data + row * term.pitch + at, count);
    }
#pragma unroll
    for (int k = 0; k < kTermsTogether; ++k) {
      if (first + k >= p.num_terms) continue;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        // 0 + -0 would be 0.
        sum.elements[i] = first + k == 0 ? x[k].elements[i]
                                         : sum.elements[i] + x[k].elements[i];
      }
    }
  }
  return sum;
}

// Rows go over y, words of a row over x, of threads and of blocks.
template <class Out, int kElements>
__global__ void __launch_bounds__(kThreads)
    Sum(const __grid_constant__ SumParams p) {
  for (int64_t row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
       row < p.rows; row += int64_t{gridDim.y} * blockDim.y) {
    const int64_t at =
        (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kElements;
    const int64_t count = p.row_elements - at;
    if (count <= 0) return;
    SumTerms<kElements>(p, row, at, count)
        .Store(static_cast<Out*>(p.to) + row * p.to_pitch + at, count);
  }
}

template <class Out, int kElements>
cudaError_t Launch(const SumParams& p, cudaStream_t stream) {
  const int64_t words = (p.row_elements + kElements - 1) / kElements;
  unsigned lanes = 1;
  while (lanes < kThreads && lanes < words) lanes *= 2;
  const unsigned rows = kThreads / lanes;
  const int64_t columns = (words + lanes - 1) / lanes;
  const int64_t row_blocks =
      std::min<int64_t>((p.rows + rows - 1) / rows, 65535);
  if (columns >= int64_t{1} << 31) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(columns),
                  static_cast<unsigned>(row_blocks));
  Sum<Out, kElements><<<grid, dim3(lanes, rows), 0, stream>>>(p);
  return cudaGetLastError();
}

template <class Out>
cudaError_t Launch(const SumParams& p, bool aligned, cudaStream_t stream) {
  return aligned ? Launch<Out, 16 / sizeof(Out)>(p, stream)
                 : Launch<Out, 1>(p, stream);
}

}  // namespace

cudaError_t LaunchSum(const SumParams& params, DType dtype, bool aligned,
                      cudaStream_t stream) {
  switch (dtype) {
    case DType::kF32:
      return Launch<float>(params, aligned, stream);
    case DType::kF16:
      return Launch<__half>(params, aligned, stream);
    case DType::kBF16:
      return Launch<__nv_bfloat16>(params, aligned, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnd::cuda
