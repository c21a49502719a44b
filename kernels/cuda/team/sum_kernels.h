#ifndef ATTND_KERNELS_CUDA_TEAM_SUM_KERNELS_H_
#define ATTND_KERNELS_CUDA_TEAM_SUM_KERNELS_H_

// What the kernels behind sums.h are told.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/attention.h"

namespace attnd::cuda {

// to = terms[0] + terms[1] + ..., all of them [rows, row_elements].
struct SumParams {
  static constexpr int kMostTerms = 64;
  struct Term {
    const float* data = nullptr;
    int64_t pitch = 0;
  };
  Term terms[kMostTerms];
  int num_terms = 0;
  void* to = nullptr;
  int64_t to_pitch = 0;
  int64_t row_elements = 0, rows = 0;
};
// At least one element. `aligned`: rows of all of them begin at multiples of 16
// bytes.
cudaError_t LaunchSum(const SumParams& params, DType dtype, bool aligned,
                      cudaStream_t stream);

// to[head, row] = a[row, head] . b[row, head]
struct DotParams {
  ConstTensorView a, b;  // [1, rows, heads, dim], b of a's type or f32
  RowView to;            // [1, heads, rows]
  int64_t rows = 0, heads = 0;
  int dim = 0;  // 1..kMaxHeadDim
  // Rows begin at multiples of 16 bytes.
  bool a_aligned = false, b_aligned = false;
};
// At least one row.
cudaError_t LaunchDot(const DotParams& params, cudaStream_t stream);

// O and LSE of rows over several sets of columns.
struct MergeParams {
  static constexpr int kMostTerms = 64;
  struct Term {
    const float* o = nullptr;  // [rows, heads, dim], if p.o is there
    int64_t token_stride = 0, head_stride = 0;
    const float* lse = nullptr;  // [heads, rows]
    int64_t lse_head_stride = 0;
  };
  Term terms[kMostTerms];
  int num_terms = 0;
  TensorView o;  // [1, rows, heads, dim], or null
  RowView lse;   // [1, heads, rows], or null
  int64_t rows = 0, heads = 0;
  int dim = 0;  // 1..kMaxHeadDim
};
// At least one row. `aligned`: rows of all O begin at multiples of 16 bytes.
cudaError_t LaunchMerge(const MergeParams& params, bool aligned,
                        cudaStream_t stream);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TEAM_SUM_KERNELS_H_
