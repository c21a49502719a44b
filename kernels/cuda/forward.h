#ifndef ATTND_KERNELS_CUDA_FORWARD_H_
#define ATTND_KERNELS_CUDA_FORWARD_H_

// Forward of a group on a CUDA stream: which kernels, with which tiles.

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/enqueue.h"
#include "kernels/cuda/launch/rest.h"

namespace attnd::cuda {

// Enqueues the group on the workspace's stream, which is one of `gpu`; nothing
// is waited for. The problems are valid, share dtype and dims, and their
// tensors are in device memory; the arrays that they point to (segments,
// lengths, starts) are in host memory and may go when it returns. Host work is
// O(problems + their arrays). kAuto and kFlashAttention2 run the fused kernels.
// Problems that have been cancelled are left out. RESOURCE_EXHAUSTED: no memory
// now, nothing was enqueued. UNIMPLEMENTED: likewise, as one of them is to be
// merged with results over other columns. INTERNAL: the device is broken.
absl::StatusOr<LaunchCounts> EnqueueForward(absl::Span<const ForwardArgs> group,
                                            Algorithm algorithm, const Gpu& gpu,
                                            Workspace& workspace);

// The same, of which only the first slice is enqueued if it takes long. Returns
// the rest, null if there is none, as long as which the group must stay.
absl::StatusOr<std::unique_ptr<Rest>> BeginForward(
    absl::Span<const ForwardArgs> group, Algorithm algorithm, const Gpu& gpu,
    Workspace& workspace, const SliceOptions& slices);

// OK, or UNIMPLEMENTED.
absl::Status SupportsForward(const Problem& problem, Algorithm algorithm);
KernelInfo ForwardKernel(const Problem& problem, Algorithm algorithm,
                         const Gpu& gpu);
// The device memory that EnqueueForward takes from a workspace for it.
int64_t ForwardScratchBytes(const Problem& problem, Algorithm algorithm);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_FORWARD_H_
