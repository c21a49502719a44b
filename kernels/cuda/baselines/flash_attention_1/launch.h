#ifndef ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_LAUNCH_H_
#define ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_LAUNCH_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/launch/descriptor.h"

namespace attnd::cuda {

// The state of one problem in memory; a row is one of [batch, q_heads, q_len].
struct FlashAttention1State {
  float* m = nullptr;  // [rows]
  float* l = nullptr;  // [rows]
  float* o = nullptr;  // [rows, value_dim]; null: O itself is f32, or absent
  BlobOffset problem = 0;  // DeviceProblem in the launch's block
};

// What the launch needs to know of the problem on the host. head_dim and
// value_dim are at most kMaxHeadDim.
cudaError_t LaunchFlashAttention1(const LaunchParams& params,
                                  const FlashAttention1State& state,
                                  const Problem& problem, cudaStream_t stream);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_LAUNCH_H_
