#ifndef ATTND_KERNELS_CUDA_DEVICE_STATUS_H_
#define ATTND_KERNELS_CUDA_DEVICE_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attnd::cuda {

// OK; RESOURCE_EXHAUSTED: no memory now, nothing is broken; INTERNAL: anything
// else, which means that the device is. `what` says what was tried. Clears the
// runtime's own record of an error that does not stick.
absl::Status ToStatus(cudaError_t error, absl::string_view what);

// For what asks for no memory of its own: if it fails for want of it, what it
// belongs to is no longer in a known state. RESOURCE_EXHAUSTED becomes
// INTERNAL, anything else stays.
absl::Status Broken(absl::Status status);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_STATUS_H_
