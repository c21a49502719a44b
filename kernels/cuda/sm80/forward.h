#ifndef ATTND_KERNELS_CUDA_SM80_FORWARD_H_
#define ATTND_KERNELS_CUDA_SM80_FORWARD_H_

// The fused forward on any GPU since Ampere: what a group is cut into.

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cuda/forward.h"
#include "kernels/cuda/workspace.h"

namespace attnd::cuda::sm80 {

// As EnqueueForward, for every valid problem.
absl::StatusOr<LaunchCounts> EnqueueForward(absl::Span<const ForwardArgs> group,
                                            Workspace& workspace);

// The kernel that most of the problem's work runs in.
KernelInfo ForwardKernel(const Problem& problem);
// Device memory for partial results, beside 64 MiB that a stream may keep.
int64_t ForwardScratchBytes(const Problem& problem);

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_FORWARD_H_
