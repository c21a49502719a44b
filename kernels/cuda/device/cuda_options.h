#ifndef ATTND_KERNELS_CUDA_DEVICE_CUDA_OPTIONS_H_
#define ATTND_KERNELS_CUDA_DEVICE_CUDA_OPTIONS_H_

// Which GPUs, and what each keeps. In every build, with CUDA and without.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace attnd {

struct CudaOptions {
  // Which of the visible GPUs, by index; empty: all that are recent enough.
  std::vector<int> devices;
  // Device memory that each keeps from one batch to the next.
  int64_t retained_bytes = int64_t{4} << 30;
  // Pinned host memory of freed results that each keeps for the next ones.
  int64_t retained_pinned_bytes = int64_t{1} << 30;

  // INVALID_ARGUMENT naming the option.
  absl::Status Validate() const;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_CUDA_DEVICE_CUDA_OPTIONS_H_
