#include "kernels/cuda/device/usage.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "absl/status/status.h"
#include "kernels/cuda/device/gpu.h"

namespace attnd::cuda {
namespace {

// NVML's binary interface, as its manual has it: the toolkit's image may lack
// its header, and every driver has the library.
struct Rates {
  unsigned int gpu;     // percent of the last sampling period
  unsigned int memory;  // likewise
};
struct Memory {
  unsigned long long total, free, used;  // NOLINT(google-runtime-int)
};
using Device = struct nvmlDevice_st*;

struct Api {
  int (*init)() = nullptr;
  int (*by_pci_bus_id)(const char* id, Device* device) = nullptr;
  int (*utilization)(Device device, Rates* rates) = nullptr;
  int (*memory)(Device device, Memory* memory) = nullptr;
  int (*mig_mode)(Device device, unsigned int* current,
                  unsigned int* pending) = nullptr;
};
constexpr int kSuccess = 0;
constexpr unsigned int kMigEnabled = 1;

template <class Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Null if there is no library, or one that lacks something.
const Api* Load() {
  static const Api* const api = []() -> const Api* {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    static Api found;
    const bool complete =
        Find(library, "nvmlInit_v2", found.init) &&
        Find(library, "nvmlDeviceGetHandleByPciBusId_v2",
             found.by_pci_bus_id) &&
        Find(library, "nvmlDeviceGetUtilizationRates", found.utilization) &&
        Find(library, "nvmlDeviceGetMemoryInfo", found.memory) &&
        Find(library, "nvmlDeviceGetMigMode", found.mig_mode) &&
        found.init() == kSuccess;
    return complete ? &found : nullptr;
  }();
  return api;
}

// Whether a GPU is cut into parts. Its address is theirs as well, and figures
// by that are the whole GPU's.
bool IsCut(const Api& api, Device device) {
  unsigned int current = 0, pending = 0;
  return api.mig_mode(device, &current, &pending) == kSuccess &&
         current == kMigEnabled;
}

std::optional<DeviceUsage> FromNvml(int index) {
  const Api* api = Load();
  char bus_id[32] = {};
  Device device = nullptr;
  Memory memory = {};
  if (api == nullptr ||
      cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), index) != cudaSuccess ||
      api->by_pci_bus_id(bus_id, &device) != kSuccess || IsCut(*api, device) ||
      api->memory(device, &memory) != kSuccess) {
    return std::nullopt;
  }
  DeviceUsage usage;
  usage.memory_used_bytes = static_cast<int64_t>(memory.used);
  usage.memory_total_bytes = static_cast<int64_t>(memory.total);
  Rates rates = {};
  if (api->utilization(device, &rates) == kSuccess) {
    usage.utilization = rates.gpu / 100.0;
  }
  return usage;
}

}  // namespace

std::optional<DeviceUsage> UsageOf(int index) {
  if (auto usage = FromNvml(index); usage.has_value()) return usage;
  size_t free = 0, total = 0;
  if (!UseDevice(index).ok() || cudaMemGetInfo(&free, &total) != cudaSuccess) {
    (void)cudaGetLastError();
    return std::nullopt;
  }
  DeviceUsage usage;
  usage.memory_used_bytes = static_cast<int64_t>(total - free);
  usage.memory_total_bytes = static_cast<int64_t>(total);
  return usage;
}

}  // namespace attnd::cuda
