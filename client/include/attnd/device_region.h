#ifndef ATTND_DEVICE_REGION_H_
#define ATTND_DEVICE_REGION_H_

// A GPU's memory that this process lends to a server on the same host: the
// server's kernels read inputs and write results there, and no byte is copied.
// Needs no CUDA to compile; the driver is loaded when it is first used.

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attnd/region.h"

namespace attnd::client {

// Memory that the caller has exported.
struct ExportedMemory {
  // Of cuMemExportToShareableHandle (POSIX file descriptor); stays the
  // caller's, who may close it afterwards.
  int fd = -1;
  void* data = nullptr;  // where the caller has mapped it: all of its bytes
  int64_t bytes = 0;     // of the whole allocation
  std::array<uint8_t, 16> gpu_uuid = {};  // cuDeviceGetUuid's
};

// Order between the two processes: what the caller's GPU work writes into an
// input must have happened (cudaStreamSynchronize) before the call begins, and
// results are there when the call has ended.

// Lends `memory`, which must stay mapped as long as the region. Blocks for
// `timeout` at most. Errors as Region::Lease's; INVALID_ARGUMENT: the server
// does not have that GPU, or finds no such memory, or not of that size, behind
// the descriptor; UNIMPLEMENTED: it takes no GPU's memory.
absl::StatusOr<std::shared_ptr<Region>> LendDeviceMemory(
    const std::string& socket, const ExportedMemory& memory,
    absl::Duration timeout = absl::Seconds(5));

// Allocates at least `bytes` on the GPU of this index (as the driver counts
// those that the process sees), maps it in that GPU's primary context, which
// CUDA's runtime uses too, and lends it. It is freed with the region.
// NOT_FOUND: no driver, or no such GPU; RESOURCE_EXHAUSTED: no memory; else as
// LendDeviceMemory.
absl::StatusOr<std::shared_ptr<Region>> AllocateDeviceRegion(
    const std::string& socket, int64_t bytes, int gpu,
    absl::Duration timeout = absl::Seconds(5));

}  // namespace attnd::client

#endif  // ATTND_DEVICE_REGION_H_
