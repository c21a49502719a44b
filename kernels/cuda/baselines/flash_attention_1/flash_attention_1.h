#ifndef ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_FLASH_ATTENTION_1_H_
#define ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_FLASH_ATTENTION_1_H_

// FlashAttention-1 as its paper's Algorithm 1 has it ([3] in
// kernels/README.md): one thread block for each sequence and q head, blocks of
// K and V in the outer loop, blocks of Q in the inner one, and the normalised
// O, m and l read from memory and written back at every pair of blocks, by
// (E10). What others are measured against.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/enqueue.h"
#include "kernels/cuda/launch/rest.h"

namespace attnd::cuda {

// As EnqueueForward, for kFlashAttention1: one launch a problem, problem after
// problem.
absl::StatusOr<LaunchCounts> EnqueueFlashAttention1(
    absl::Span<const ForwardArgs> group, Workspace& workspace);

// The same, of which only the first slice, at least a problem, is enqueued if
// it takes long; returns the rest, null if there is none. The group must stay
// as long as the rest.
absl::StatusOr<std::unique_ptr<Rest>> BeginFlashAttention1(
    absl::Span<const ForwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const SliceOptions& slices);

// O, m and l of all rows in f32. Saturates.
int64_t FlashAttention1ScratchBytes(const Problem& problem);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_FLASH_ATTENTION_1_H_
