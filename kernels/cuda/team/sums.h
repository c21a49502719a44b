#ifndef ATTND_KERNELS_CUDA_TEAM_SUMS_H_
#define ATTND_KERNELS_CUDA_TEAM_SUMS_H_

// Sums and merges of what several devices have computed, enqueued on a stream
// whose device is current. INTERNAL: the device is broken, or it is no such
// sum.

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/team/member_stream.h"

namespace attnd::cuda {

absl::Status EnqueueSum(const BlockSum& sum, cudaStream_t stream);

// (E11). Has the bits of the delta that backward finds itself.
absl::Status EnqueueDot(const RowDots& dots, cudaStream_t stream);

// (E19), (E20).
absl::Status EnqueueMerge(const RowMerges& merges, cudaStream_t stream);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TEAM_SUMS_H_
