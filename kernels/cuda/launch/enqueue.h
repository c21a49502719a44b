#ifndef ATTND_KERNELS_CUDA_LAUNCH_ENQUEUE_H_
#define ATTND_KERNELS_CUDA_LAUNCH_ENQUEUE_H_

// From launches to kernels on a CUDA stream.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/launch.h"

namespace attnd::cuda {

// How much a call enqueued.
struct LaunchCounts {
  int kernels = 0;
  int copies = 0;  // from host to device
};

// Loads the launches' kernels, if they are not loaded, and allows them the
// shared memory that they take. For the calling thread's device.
absl::Status Prepare(absl::Span<const Launch> launches);

// RESOURCE_EXHAUSTED if a group's descriptors are more than can be addressed.
absl::Status CheckBlock(const std::vector<std::byte>& block);

// Puts a group's descriptors where its kernels find them: into `params` if they
// are few, else into device memory, which takes a copy. RESOURCE_EXHAUSTED when
// there is no memory for them.
absl::Status PlaceBlock(const std::vector<std::byte>& block,
                        Workspace& workspace, LaunchParams& params,
                        LaunchCounts& counts);

// Enqueues tiles [first, end) of a launch, as if it had no others. `params` as
// below. INTERNAL: the device is broken.
absl::Status EnqueueTiles(const Launch& launch, int64_t first, int64_t end,
                          LaunchParams& params, const Gpu& gpu,
                          cudaStream_t stream, LaunchCounts& counts);

// Enqueues the launches in order. `params` has what they share: the block of
// descriptors, scratch and counters; what is a launch's own changes. INTERNAL:
// the device is broken.
absl::Status Enqueue(absl::Span<const Launch> launches, LaunchParams& params,
                     const Gpu& gpu, cudaStream_t stream, LaunchCounts& counts);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_ENQUEUE_H_
