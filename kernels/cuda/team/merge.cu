#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/team/sum_kernels.h"
#include "kernels/cuda/team/word.cuh"

namespace attnd::cuda {
namespace {

constexpr int kThreads = 256;
// How many terms each thread loads at once.
constexpr int kTermsTogether = 4;

// What is summed up in. An O of f32 shows the rounding of each weight and each
// addition, as it does on a host; one of 16 bits does not.
template <class Out>
using SumOf = std::conditional_t<std::is_same_v<Out, float>, double, float>;

// Of one row of one head: the largest LSE of all terms, and the sum over them
// of exp(LSE - the largest), as RowMerger in row_merge.h has them on a host.
template <class Sum>
struct MergedLse {
  float most = -INFINITY;
  Sum sum = 0;

  __device__ Sum Share(float lse) const { return exp(Sum{lse} - Sum{most}); }
  __device__ float Lse() const {
    return sum == 0 ? -INFINITY : static_cast<float>(most + log(sum));
  }
};

__device__ float LseOf(const MergeParams::Term& term, int64_t row,
                       int64_t head) {
  return term.lse[head * term.lse_head_stride + row];
}

// (E19). -inf: nothing was seen there.
template <class Sum>
__device__ MergedLse<Sum> MergeLse(const MergeParams& p, int64_t row,
                                   int64_t head) {
  MergedLse<Sum> merged;
  for (int t = 0; t < p.num_terms; ++t) {
    const float lse = LseOf(p.terms[t], row, head);
    if (lse > merged.most) merged.most = lse;
  }
  for (int t = 0; t < p.num_terms; ++t) {
    const float lse = LseOf(p.terms[t], row, head);
    if (lse != -INFINITY) merged.sum += merged.Share(lse);
  }
  return merged;
}

// (E20) of element `at` of the row and those after it. What O holds of a term
// that has seen nothing is not read.
template <int kElements, class Sum>
__device__ Word<kElements> MergeTerms(const MergeParams& p,
                                      const MergedLse<Sum>& merged, int64_t row,
                                      int64_t head, int at) {
  Sum o[kElements] = {};
  for (int first = 0; first < p.num_terms; first += kTermsTogether) {
    Word<kElements> x[kTermsTogether];
    float lse[kTermsTogether];
#pragma unroll
    for (int k = 0; k < kTermsTogether; ++k) {
      lse[k] = -INFINITY;
      if (first + k >= p.num_terms) continue;
      const MergeParams::Term& term = p.terms[first + k];
      lse[k] = LseOf(term, row, head);
      if (lse[k] == -INFINITY) continue;
      x[k].Load(term.o + row * term.token_stride + head * term.head_stride + at,
                p.dim - at);
    }
#pragma unroll
    for (int k = 0; k < kTermsTogether; ++k) {
      if (lse[k] == -INFINITY) continue;
      const Sum weight = merged.Share(lse[k]) / merged.sum;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        o[i] = fma(weight, Sum{x[k].elements[i]}, o[i]);
      }
    }
  }
  Word<kElements> rounded;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    rounded.elements[i] = static_cast<float>(o[i]);
  }
  return rounded;
}

// Rows of all heads one after another. A power of two lanes share a row, each
// with kElements of it, and all of them find its LSE, which lies in the cache.
template <class Out, int kElements>
__global__ void __launch_bounds__(kThreads)
    Merge(const __grid_constant__ MergeParams p, const int lanes_log2) {
  const int lanes = 1 << lanes_log2;
  const int thread = static_cast<int>(threadIdx.x);
  const int at = kElements * (thread & (lanes - 1));
  const int64_t item =
      int64_t{blockIdx.x} * (kThreads >> lanes_log2) + (thread >> lanes_log2);
  if (item >= p.rows * p.heads) return;
  const int64_t head = item / p.rows, row = item % p.rows;
  const auto merged = MergeLse<SumOf<Out>>(p, row, head);
  if (at == 0 && p.lse.data != nullptr) {
    p.lse.data[head * p.lse.head_stride + row] = merged.Lse();
  }
  if (p.o.data == nullptr || at >= p.dim) return;
  MergeTerms<kElements>(p, merged, row, head, at)
      .Store(static_cast<Out*>(p.o.data) + row * p.o.token_stride +
                 head * p.o.head_stride + at,
             p.dim - at);
}

template <class Out, int kElements>
cudaError_t Launch(const MergeParams& p, cudaStream_t stream) {
  int lanes_log2 = 0;
  if (p.o.data != nullptr) {
    while (kElements << lanes_log2 < p.dim) ++lanes_log2;
  }
  const int64_t rows = kThreads >> lanes_log2;
  const int64_t blocks = (p.rows * p.heads + rows - 1) / rows;
  if (blocks >= int64_t{1} << 31) return cudaErrorInvalidValue;
  Merge<Out, kElements>
      <<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(p, lanes_log2);
  return cudaGetLastError();
}

template <class Out>
cudaError_t Launch(const MergeParams& p, bool aligned, cudaStream_t stream) {
  return aligned ? Launch<Out, 16 / sizeof(Out)>(p, stream)
                 : Launch<Out, 1>(p, stream);
}

}  // namespace

cudaError_t LaunchMerge(const MergeParams& params, bool aligned,
                        cudaStream_t stream) {
  switch (params.o.dtype) {
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
