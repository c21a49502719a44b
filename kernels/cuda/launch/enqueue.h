#ifndef ATTND_KERNELS_CUDA_LAUNCH_ENQUEUE_H_
#define ATTND_KERNELS_CUDA_LAUNCH_ENQUEUE_H_

// From launches that are planned to kernels on a stream.

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/launch.h"

namespace attnd::cuda {

// What a call enqueued.
struct LaunchCounts {
  int kernels = 0;
  int copies = 0;  // host to device
};

// Loads the launches' kernels, if they are not, and allows them the shared
// memory they take.
absl::Status Prepare(absl::Span<const Launch> launches);

// Puts a group's descriptors where its kernels find them: into `params`, or
// into device memory, which is a copy. RESOURCE_EXHAUSTED when there is none.
absl::Status PlaceBlock(const std::vector<std::byte>& block,
                        Workspace& workspace, LaunchParams& params,
                        LaunchCounts& counts);

// Enqueues the launches in order. `params` has the block and what kernels write
// to beside their outputs.
absl::Status Enqueue(absl::Span<const Launch> launches,
                     const LaunchParams& params, const Gpu& gpu,
                     cudaStream_t stream, LaunchCounts& counts);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_ENQUEUE_H_
