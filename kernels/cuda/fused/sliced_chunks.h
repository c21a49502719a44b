#ifndef ATTND_KERNELS_CUDA_FUSED_SLICED_CHUNKS_H_
#define ATTND_KERNELS_CUDA_FUSED_SLICED_CHUNKS_H_

// Chunks that are enqueued slice by slice.

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/fused/chunks.h"
#include "kernels/cuda/launch/rest.h"

namespace attnd::cuda {

// Enqueues the chunks' first slice, or all of them if they are small; returns
// their rest, null if nothing is left. The problems that they were made of must
// stay as long as it does; of those that are cancelled nothing more is enqueued
// from the next slice on. Errors are those of EnqueueChunks.
absl::StatusOr<std::unique_ptr<Rest>> BeginChunks(Chunks chunks, const Gpu& gpu,
                                                  Workspace& workspace,
                                                  const SliceOptions& options);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_FUSED_SLICED_CHUNKS_H_
