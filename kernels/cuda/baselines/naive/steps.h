#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_STEPS_H_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_STEPS_H_

// The steps of naive attention between its two products: one kernel each.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/launch/descriptor.h"

namespace attnd::cuda {

// The rows of one problem's matrices. A row is one of [batch, q_heads, q_len],
// a column a token of any segment, padding included, as in the bias.
struct NaiveRows {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t pitch = 0;          // elements from a row of any matrix to the next
  float* m = nullptr;         // [rows]
  float* l = nullptr;         // [rows]
  DType dtype = DType::kF32;  // of the inputs
  BlobOffset problem = 0;     // DeviceProblem in the launch's block
};

// Each reads the matrix `from`, f32, and writes `to`, which may be the same:
// kDivide in the inputs' type, the others in f32, or m or l and no matrix. Rows
// that see nothing, and those past their sequence's length, are -inf until
// kExp, and in m, and 0 in P. Columns past `columns` are neither read nor
// written. There is at least one row.
enum class NaiveStep { kScale, kRowMax, kSubtract, kExp, kRowSum, kDivide };

cudaError_t LaunchNaiveStep(NaiveStep step, const LaunchParams& params,
                            const NaiveRows& x, const float* from, void* to,
                            cudaStream_t stream);

// A result of which something is still to be written: what was summed up in f32
// elsewhere, and zeros for what no product reaches.
struct UnfinishedTokens {
  TensorView to;                  // [batch, tokens, heads, dim]
  float* sums = nullptr;          // [batch, heads, tokens, dim], or null
  int64_t tokens = 0, heads = 0;  // there is at least one of each
  int64_t dim = 0;
  int segment = -1;        // that the tokens are of; -1: queries
  BlobOffset problem = 0;  // DeviceProblem in the launch's block
};

// Writes the sums, rounded, if there are any, and zeros to tokens past their
// sequence's length and to sequences without a query or without a key.
cudaError_t LaunchFinish(const LaunchParams& params,
                         const UnfinishedTokens& unfinished, int64_t batch,
                         cudaStream_t stream);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_STEPS_H_
