#ifndef ATTND_KERNELS_CPU_CPU_BACKEND_H_
#define ATTND_KERNELS_CPU_CPU_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace attnd {

struct CpuOptions {
  // Compute threads, shared by all streams. 0: as many as the machine runs at
  // once. Results do not depend on it.
  int threads = 0;
  // Of several virtual devices, which one it is.
  int index = 0;
  // Input memory that a stream keeps between batches, so that a warm server
  // takes no page faults. What a batch needs beyond it goes back to the system.
  int64_t retained_bytes = 16 << 20;
  // The same of what the kernels pack, and sum up in parts.
  int64_t retained_workspace_bytes = 64 << 20;

  // INVALID_ARGUMENT naming the option.
  absl::Status Validate() const;
};

// The processor as a device. Host and device memory are the same: inputs are
// copied once, into the stream's arena, outputs are written in place. Supports
// every valid problem.
//
// A stream runs its work inside Forward and Backward, on the backend's shared
// threads; a problem of a few microseconds runs on the calling thread.
// INVALID_ARGUMENT: bad options; RESOURCE_EXHAUSTED: no memory, or too few
// threads can start.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(
    const CpuOptions& options);

}  // namespace attnd

#endif  // ATTND_KERNELS_CPU_CPU_BACKEND_H_
