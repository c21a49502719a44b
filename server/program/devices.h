#ifndef ATTND_SERVER_PROGRAM_DEVICES_H_
#define ATTND_SERVER_PROGRAM_DEVICES_H_

// What computes: the machine's GPUs or its processor, as --device says.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "server/scheduling/options.h"

namespace attnd::server {

struct DeviceOptions {
  enum class Kind { kAuto, kCpu, kCuda };

  Kind kind = Kind::kAuto;
  int cpus = 1;  // virtual devices, each with its part of the threads
  CpuOptions cpu;
  CudaOptions cuda;
};

// Reads "auto", "cpu", "cpu*4" (so many virtual devices), "cuda" (every GPU) or
// "cuda:0,2" (these) into `options`. INVALID_ARGUMENT, saying what is wrong.
absl::Status ParseDevice(absl::string_view text, DeviceOptions& options);
// As ParseDevice reads it.
std::string DeviceFlag(const DeviceOptions& options);

// Decides kAuto: the GPUs if this process can use one, else the CPU. May start
// threads of the GPU's driver.
DeviceOptions Resolve(DeviceOptions options);

// What `options` ask for, and after several devices that are alike their team.
// An error names the flag; NOT_FOUND: a GPU that is not there or too old.
absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateDevices(
    const DeviceOptions& options);

// Where the processor computes: what its streams keep between two requests
// comes out of no account, and so is a small part of the limit.
void LimitKeptMemory(int64_t memory_limit_bytes, DeviceOptions& options);

// The defaults where `kind` computes, once resolved. A GPU does in a
// millisecond what takes a processor a second: more makes up a group, and more
// is small.
SchedulerOptions SchedulerDefaults(DeviceOptions::Kind kind);

}  // namespace attnd::server

#endif  // ATTND_SERVER_PROGRAM_DEVICES_H_
