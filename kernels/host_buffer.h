#ifndef ATTND_KERNELS_HOST_BUFFER_H_
#define ATTND_KERNELS_HOST_BUFFER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace attnd {

// A DeviceBuffer for devices that share the host's memory: `bytes` >= 0 of
// `memory`, which it keeps, and a Write that copies. RESOURCE_EXHAUSTED: no
// memory now. Thread-safe.
absl::StatusOr<std::shared_ptr<DeviceBuffer>> NewHostBuffer(
    std::shared_ptr<HostMemory> memory, int64_t bytes);

}  // namespace attnd

#endif  // ATTND_KERNELS_HOST_BUFFER_H_
