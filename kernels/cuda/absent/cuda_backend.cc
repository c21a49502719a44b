// What a build without a CUDA toolkit has.

#include "kernels/cuda/cuda_backend.h"

namespace attnd {

int CudaDeviceCount() { return 0; }

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateCudaBackends(
    const CudaOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  return absl::NotFoundError("this build has no CUDA");
}

}  // namespace attnd
