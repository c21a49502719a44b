#ifndef ATTND_KERNELS_CUDA_CUDA_BACKEND_H_
#define ATTND_KERNELS_CUDA_CUDA_BACKEND_H_

// NVIDIA GPUs as devices. Knows no CUDA header: in a build without a toolkit
// there are simply no GPUs.

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/cuda_options.h"

namespace attnd {

// How many GPUs this process can use; 0 without a driver, or in a build without
// CUDA.
int CudaDeviceCount();

// One backend per GPU, in order. NOT_FOUND when there is none, or one that
// `options` names is not there or older than compute capability 8.0.
//
// Inputs go through a few MiB of pinned staging memory per stream; outputs come
// straight into host_memory(), which is pinned. Every call of a stream only
// enqueues, but for the copy into staging memory. See README.md.
absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateCudaBackends(
    const CudaOptions& options);

}  // namespace attnd

#endif  // ATTND_KERNELS_CUDA_CUDA_BACKEND_H_
