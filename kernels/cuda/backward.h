#ifndef ATTND_KERNELS_CUDA_BACKWARD_H_
#define ATTND_KERNELS_CUDA_BACKWARD_H_

// Backward of a group on a CUDA stream: which kernels, with which tiles.

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

// As EnqueueForward (see forward.h); UNIMPLEMENTED where gradients are to be
// added to what was there before by an algorithm that is kept to be compared.
// Of deterministic problems a result's bits depend on its own sequence alone,
// whatever else runs.
absl::StatusOr<LaunchCounts> EnqueueBackward(
    absl::Span<const BackwardArgs> group, const GroupOptions& options,
    const Gpu& gpu, Workspace& workspace);

// The same, as BeginForward.
absl::StatusOr<std::unique_ptr<Rest>> BeginBackward(
    absl::Span<const BackwardArgs> group, const GroupOptions& options,
    const Gpu& gpu, Workspace& workspace, const SliceOptions& slices);

// OK, or UNIMPLEMENTED.
absl::Status SupportsBackward(const Problem& problem, Algorithm algorithm);
KernelInfo BackwardKernel(const Problem& problem, const GroupOptions& options,
                          const Gpu& gpu);
// The device memory that EnqueueBackward takes from a workspace for it.
int64_t BackwardScratchBytes(const Problem& problem, Algorithm algorithm);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BACKWARD_H_
