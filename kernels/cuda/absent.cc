// What a build without a CUDA toolkit has.

#include "kernels/cuda/cuda_backend.h"

namespace attnd {

absl::Status CudaOptions::Validate() const { return absl::OkStatus(); }

int CudaDeviceCount() { return 0; }

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateCudaBackends(
    const CudaOptions&) {
  return absl::NotFoundError("this build has no CUDA");
}

}  // namespace attnd
