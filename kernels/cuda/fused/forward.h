#ifndef ATTND_KERNELS_CUDA_FUSED_FORWARD_H_
#define ATTND_KERNELS_CUDA_FUSED_FORWARD_H_

// The fused forward: which kernels a group runs in, and with which tiles.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/enqueue.h"
#include "kernels/cuda/launch/rest.h"

namespace attnd::cuda {

struct FusedOptions {
  bool any_gpu = false;  // sm80's kernels, on a Hopper too
};

// As EnqueueForward, for every valid problem. sm90's kernels run what they can
// take, if the device is a Hopper, and sm80's the rest.
absl::StatusOr<LaunchCounts> EnqueueFused(absl::Span<const ForwardArgs> group,
                                          const Gpu& gpu, Workspace& workspace,
                                          const FusedOptions& options = {});

// The same, of which only the first slice is enqueued if it takes long; returns
// the rest, null if there is none. The group must stay as long as the rest.
absl::StatusOr<std::unique_ptr<Rest>> BeginFused(
    absl::Span<const ForwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const SliceOptions& slices);

// The kernel that most of the problem's work runs in, on such a device, if its
// memory is aligned as sm90's kernels need it.
KernelInfo FusedKernel(const Problem& problem, const Gpu& gpu);
// Where forward of one sequence may be cut: see Backend::Cut.
CutUnit FusedCut(const Problem& sequence, const Gpu& gpu);
// Device memory for partial results, beside 64 MiB that a stream may keep.
int64_t FusedScratchBytes(const Problem& problem);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_FUSED_FORWARD_H_
