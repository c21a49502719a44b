#ifndef ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_FLASH_ATTENTION_1_H_
#define ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_FLASH_ATTENTION_1_H_

// FlashAttention-1 as its paper's Algorithm 1 has it ([3] in
// kernels/README.md): one thread block for each sequence and q head, blocks of
// K and V in the outer loop, blocks of Q in the inner one, and the normalised
// O, m and l read from memory and written back at every pair of blocks, by
// (E10). What others are measured against.

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/enqueue.h"

namespace attnd::cuda {

// As EnqueueForward, for kFlashAttention1: one launch a problem, problem after
// problem.
absl::StatusOr<LaunchCounts> EnqueueFlashAttention1(
    absl::Span<const ForwardArgs> group, Workspace& workspace);

// O, m and l of all rows in f32. Saturates.
int64_t FlashAttention1ScratchBytes(const Problem& problem);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_FLASH_ATTENTION_1_H_
