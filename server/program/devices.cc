#include "server/program/devices.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/team/team.h"
#include "proto/wire/status.h"

namespace attnd::server {
namespace {

constexpr int kMostCpus = 16;

// Digits alone: SimpleAtoi takes blanks and signs too.
bool ParseIndex(absl::string_view text, int& index) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, &index);
}

absl::StatusOr<std::vector<int>> ParseIndices(absl::string_view text) {
  std::vector<int> indices;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int index = 0;
    if (!ParseIndex(part, index)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", wire::Echo(part), "\" is no index of a GPU"));
    }
    if (std::find(indices.begin(), indices.end(), index) != indices.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("GPU ", index, " is there twice"));
    }
    indices.push_back(index);
  }
  return indices;
}

absl::Status Named(const absl::Status& status, const DeviceOptions& options) {
  return absl::Status(
      status.code(),
      absl::StrCat("--device=", DeviceFlag(options), ": ", status.message()));
}

using Devices = std::vector<std::unique_ptr<Backend>>;

// The devices, and their team if they are several that are alike. It refers to
// them, but not when it goes.
absl::StatusOr<Devices> WithTeam(Devices devices,
                                 const DeviceOptions& options) {
  if (devices.size() < 2) return devices;
  std::vector<Backend*> members;
  members.reserve(devices.size());
  for (const auto& device : devices) {
    if (device->device().name != devices.front()->device().name) return devices;
    members.push_back(device.get());
  }
  absl::StatusOr<std::unique_ptr<Backend>> team = CreateTeam(members);
  if (!team.ok()) return Named(team.status(), options);
  devices.push_back(*std::move(team));
  return devices;
}

absl::StatusOr<Devices> CreateCpus(const DeviceOptions& options) {
  Devices devices;
  for (int i = 0; i < options.cpus; ++i) {
    CpuOptions cpu = options.cpu;
    cpu.index = i;
    if (options.cpus > 1) {
      const int threads =
          cpu.threads > 0
              ? cpu.threads
              : static_cast<int>(std::thread::hardware_concurrency());
      cpu.threads = std::max(1, threads / options.cpus);
    }
    auto device = CreateCpuBackend(cpu);
    if (!device.ok()) return Named(device.status(), options);
    devices.push_back(*std::move(device));
  }
  return WithTeam(std::move(devices), options);
}

}  // namespace

absl::Status ParseDevice(absl::string_view text, DeviceOptions& options) {
  using Kind = DeviceOptions::Kind;
  options.cuda.devices.clear();
  options.cpus = 1;
  if (text == "auto" || text == "cpu" || text == "cuda") {
    options.kind = text == "auto"  ? Kind::kAuto
                   : text == "cpu" ? Kind::kCpu
                                   : Kind::kCuda;
    return absl::OkStatus();
  }
  if (absl::ConsumePrefix(&text, "cpu*")) {
    if (!ParseIndex(text, options.cpus) || options.cpus < 1 ||
        options.cpus > kMostCpus) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the number of virtual devices must be 1 to ", kMostCpus));
    }
    options.kind = Kind::kCpu;
    return absl::OkStatus();
  }
  if (!absl::ConsumePrefix(&text, "cuda:")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", wire::Echo(text),
                     "\" is none of auto, cpu, cpu*COUNT, cuda and "
                     "cuda:INDEX,..."));
  }
  absl::StatusOr<std::vector<int>> indices = ParseIndices(text);
  if (!indices.ok()) return indices.status();
  options.kind = Kind::kCuda;
  options.cuda.devices = *std::move(indices);
  return absl::OkStatus();
}

std::string DeviceFlag(const DeviceOptions& options) {
  switch (options.kind) {
    case DeviceOptions::Kind::kAuto:
      return "auto";
    case DeviceOptions::Kind::kCpu:
      return options.cpus == 1 ? "cpu" : absl::StrCat("cpu*", options.cpus);
    case DeviceOptions::Kind::kCuda:
      break;
  }
  return options.cuda.devices.empty()
             ? "cuda"
             : absl::StrCat("cuda:", absl::StrJoin(options.cuda.devices, ","));
}

DeviceOptions Resolve(DeviceOptions options) {
  if (options.kind == DeviceOptions::Kind::kAuto) {
    options.kind = CudaDeviceCount() > 0 ? DeviceOptions::Kind::kCuda
                                         : DeviceOptions::Kind::kCpu;
  }
  return options;
}

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateDevices(
    const DeviceOptions& options) {
  const DeviceOptions resolved = Resolve(options);
  if (resolved.kind == DeviceOptions::Kind::kCuda) {
    auto gpus = CreateCudaBackends(resolved.cuda);
    if (!gpus.ok()) return Named(gpus.status(), resolved);
    return WithTeam(*std::move(gpus), resolved);
  }
  return CreateCpus(resolved);
}

void LimitKeptMemory(int64_t memory_limit_bytes, DeviceOptions& options) {
  // Each lane's stream keeps both: at 4 GiB two of them 48 MiB.
  CpuOptions& cpu = options.cpu;
  cpu.retained_bytes = std::min(cpu.retained_bytes, memory_limit_bytes / 256);
  cpu.retained_workspace_bytes =
      std::min(cpu.retained_workspace_bytes, memory_limit_bytes / 512);
}

SchedulerOptions SchedulerDefaults(DeviceOptions::Kind kind) {
  SchedulerOptions options;
  if (kind != DeviceOptions::Kind::kCuda) {
    options.run_here_flops = kRunHereFlops;
    return options;
  }
  // One for small requests, and two whose copies and kernels overlap.
  options.lanes_per_device = 3;
  // Threads that receive requests never wait for a device.
  options.run_here_flops = 0;
  options.small_request_flops = 1e10;
  options.max_batch_flops = 1e12;
  options.max_request_flops = 1e16;
  options.max_queue_flops = 1e17;
  return options;
}

}  // namespace attnd::server
