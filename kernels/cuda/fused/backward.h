#ifndef ATTND_KERNELS_CUDA_FUSED_BACKWARD_H_
#define ATTND_KERNELS_CUDA_FUSED_BACKWARD_H_

// The fused backward, in three launches: delta and LSE of every row; dK and dV
// of every block of columns, which add their parts of dQ to sums in f32; and
// those sums to dQ. Where Hopper's kernels run, a launch before theirs says
// what there is to know of each block of columns.

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

struct FusedBackwardOptions {
  bool deterministic = false;
  bool any_gpu = false;  // sm80's kernels, on a Hopper too
};

// As EnqueueBackward, for every valid problem.
absl::StatusOr<LaunchCounts> EnqueueFusedBackward(
    absl::Span<const BackwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const FusedBackwardOptions& options = {});

// The same, as BeginFused.
absl::StatusOr<std::unique_ptr<Rest>> BeginFusedBackward(
    absl::Span<const BackwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const SliceOptions& slices, const FusedBackwardOptions& options = {});

// The kernel that the problem's work runs in, on such a device.
KernelInfo FusedBackwardKernel(const Problem& problem, const Gpu& gpu);
// Device memory for LSE, delta and the sums of dQ, and for what kernels know of
// blocks of columns: as many bytes as a row and head_dim take, and as a column,
// never as q_len x kv_len.
int64_t FusedBackwardScratchBytes(const Problem& problem);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_FUSED_BACKWARD_H_
