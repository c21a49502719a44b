#ifndef ATTND_KERNELS_CUDA_DEVICE_USAGE_H_
#define ATTND_KERNELS_CUDA_DEVICE_USAGE_H_

#include <optional>

#include "kernels/backend.h"

namespace attnd::cuda {

// What the driver's management library (NVML) says of a GPU; without that
// library, or of a part of a GPU, memory alone, as the runtime says it. Empty:
// neither answers. Thread-safe.
std::optional<DeviceUsage> UsageOf(int index);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_USAGE_H_
