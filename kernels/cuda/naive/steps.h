#ifndef ATTND_KERNELS_CUDA_NAIVE_STEPS_H_
#define ATTND_KERNELS_CUDA_NAIVE_STEPS_H_

// The steps of naive attention between its two products: one kernel each.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/descriptor.h"

namespace attnd::cuda {

// One problem's matrices. A row is one of [batch, q_heads, q_len], a column a
// token of any segment, padding included, as in the bias.
struct NaiveMatrices {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t pitch = 0;   // elements from a row of S, or P, to the next
  float* s = nullptr;  // [rows, columns]
  void* p = nullptr;   // [rows, columns], in the inputs' type
  float* m = nullptr;  // [rows]
  float* l = nullptr;  // [rows]
  // O before it is rounded, if it is summed over segments; or null.
  float* o = nullptr;         // [rows, value_dim]
  DType dtype = DType::kF32;  // of the inputs
  BlobOffset problem = 0;     // DeviceProblem in the launch's block
};

// Rows that see nothing, and those past their sequence's length, are -inf in S
// and m, and 0 in P. Columns past `columns` are neither read nor written.
enum class NaiveStep { kScale, kRowMax, kSubtract, kExp, kRowSum, kDivide };

cudaError_t LaunchNaiveStep(NaiveStep step, const LaunchParams& params,
                            const NaiveMatrices& matrices, cudaStream_t stream);

// Writes to the problem's O what the products did not: `matrices.o` rounded, if
// there is one, and zeros for rows past their sequence's length and for
// sequences without a column.
cudaError_t LaunchFinishOutput(const LaunchParams& params,
                               const NaiveMatrices& matrices,
                               cudaStream_t stream);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_NAIVE_STEPS_H_
