#include "kernels/cuda/device/cuda_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace attnd {

absl::Status CudaOptions::Validate() const {
  for (auto at = devices.begin(); at != devices.end(); ++at) {
    if (*at < 0) {
      return absl::InvalidArgumentError("devices: must not be negative");
    }
    if (std::find(devices.begin(), at, *at) != at) {
      return absl::InvalidArgumentError(
          absl::StrCat("devices: ", *at, " is there twice"));
    }
  }
  if (retained_bytes < 0) {
    return absl::InvalidArgumentError("retained_bytes: must not be negative");
  }
  if (retained_pinned_bytes < 0) {
    return absl::InvalidArgumentError(
        "retained_pinned_bytes: must not be negative");
  }
  return absl::OkStatus();
}

}  // namespace attnd
