#include "kernels/cuda/device/status.h"

#include "absl/strings/str_cat.h"

namespace attnd::cuda {

absl::Status ToStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  const std::string message =
      absl::StrCat(what, ": ", cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

absl::Status Broken(absl::Status status) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::InternalError(status.message());
}

}  // namespace attnd::cuda
