#ifndef ATTND_KERNELS_CUDA_DEVICE_PINNING_H_
#define ATTND_KERNELS_CUDA_DEVICE_PINNING_H_

// Host memory that others allocated, pinned where it lies, and copies from and
// to it. Thread-safe.

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace attnd::cuda {

// Pins `memory`, whole pages within one piece (see kPinnedPieceBytes), for all
// devices; device `device` is current then. RESOURCE_EXHAUSTED: the system pins
// no more of it, and nothing is broken; INTERNAL: anything else, as of memory
// that is pinned already.
absl::Status PinMemory(int device, HostSpan memory);
// The same span. A device that broke does not unpin any more: that memory goes
// with the process.
void UnpinMemory(int device, HostSpan memory);

// Enqueue copies on `stream`, whose device is current. No copy reaches from one
// piece of host memory into the next: those may have been pinned by separate
// calls, and the driver refuses, or does itself, what lies in two of them. An
// error means that the device is broken.
absl::Status CopyToDevice(ConstHostSpan from, std::byte* to,
                          cudaStream_t stream);
absl::Status CopyToHost(const std::byte* from, HostSpan to,
                        cudaStream_t stream);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_PINNING_H_
