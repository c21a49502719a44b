#include "kernels/cuda/device/gpu.h"

#include <cuda_runtime_api.h>

#include <fstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// Without a context on the device: merely looking costs it nothing.
absl::StatusOr<int> Attribute(int index, cudaDeviceAttr attribute) {
  int value = 0;
  absl::Status status = ToStatus(
      cudaDeviceGetAttribute(&value, attribute, index), "a device's attribute");
  if (!status.ok()) return status;
  return value;
}

absl::StatusOr<int> Capability(int index) {
  const auto major = Attribute(index, cudaDevAttrComputeCapabilityMajor);
  if (!major.ok()) return major.status();
  const auto minor = Attribute(index, cudaDevAttrComputeCapabilityMinor);
  if (!minor.ok()) return minor.status();
  return 10 * *major + *minor;
}

absl::StatusOr<int> CountDevices() {
  int count = 0;
  const absl::Status status = ToStatus(cudaGetDeviceCount(&count), "no GPU");
  if (!status.ok()) return absl::NotFoundError(status.message());
  return count;
}

// The node of the host's memory next to the GPU, as the system knows its PCI
// device; -1 where it does not say, as in many virtual machines.
int NumaNode(int index) {
  char name[32] = {};
  const absl::Status status =
      ToStatus(cudaDeviceGetPCIBusId(name, sizeof(name), index), "PCI device");
  if (!status.ok()) return -1;
  std::ifstream file(absl::StrCat("/sys/bus/pci/devices/",
                                  absl::AsciiStrToLower(name), "/numa_node"));
  int node = -1;
  return file >> node && node >= 0 ? node : -1;
}

absl::Status KeepFreedMemory(int index, int64_t bytes) {
  cudaMemPool_t pool = nullptr;
  absl::Status status =
      ToStatus(cudaDeviceGetDefaultMemPool(&pool, index), "memory pool");
  if (!status.ok()) return status;
  uint64_t threshold = static_cast<uint64_t>(bytes);
  return ToStatus(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold,
                                          &threshold),
                  "memory pool");
}

}  // namespace

absl::StatusOr<std::vector<int>> UsableDevices() {
  absl::StatusOr<int> count = CountDevices();
  if (!count.ok()) return count.status();
  std::vector<int> usable;
  for (int index = 0; index < *count; ++index) {
    absl::StatusOr<int> capability = Capability(index);
    if (capability.ok() && *capability >= kLeastCapability) {
      usable.push_back(index);
    }
  }
  return usable;
}

absl::StatusOr<DeviceInfo> OpenDevice(int index, int64_t retained_bytes) {
  absl::StatusOr<int> count = CountDevices();
  if (!count.ok()) return count.status();
  if (index < 0 || index >= *count) {
    return absl::NotFoundError(
        absl::StrCat("there is no GPU ", index, ", only ", *count));
  }
  absl::StatusOr<int> capability = Capability(index);
  if (!capability.ok()) return capability.status();
  if (*capability < kLeastCapability) {
    return absl::NotFoundError(absl::StrCat(
        "GPU ", index, " has compute capability ", *capability / 10, ".",
        *capability % 10, "; 8.0 is the least"));
  }
  cudaDeviceProp properties;
  absl::Status status = UseDevice(index);
  if (status.ok()) {
    status =
        ToStatus(cudaGetDeviceProperties(&properties, index), "properties");
  }
  if (status.ok()) status = KeepFreedMemory(index, retained_bytes);
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat("GPU ", index, ": ", status.message()));
  }
  DeviceInfo info;
  info.kind = "cuda";
  info.name = properties.name;
  info.index = index;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.uuid.assign(properties.uuid.bytes, sizeof(properties.uuid.bytes));
  info.numa_node = NumaNode(index);
  return info;
}

void TakeFirstMemory(int index) {
  void* memory = nullptr;
  absl::Status status = UseDevice(index);
  if (status.ok()) {
    status = ToStatus(cudaMallocAsync(&memory, 1, cudaStreamPerThread),
                      "first memory");
  }
  if (status.ok()) {
    status = ToStatus(cudaFreeAsync(memory, cudaStreamPerThread), "freeing");
  }
  if (status.ok()) {
    status = ToStatus(cudaStreamSynchronize(cudaStreamPerThread), "freeing");
  }
  status.IgnoreError();
}

absl::StatusOr<Gpu> DescribeGpu(int index) {
  const auto capability = Capability(index);
  if (!capability.ok()) return capability.status();
  const auto count = Attribute(index, cudaDevAttrMultiProcessorCount);
  if (!count.ok()) return count.status();
  const auto shared = Attribute(index, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (!shared.ok()) return shared.status();
  const auto cache = Attribute(index, cudaDevAttrL2CacheSize);
  if (!cache.ok()) return cache.status();
  return Gpu{.capability = *capability,
             .multiprocessors = *count,
             .shared_bytes = *shared,
             .cache_bytes = *cache};
}

absl::StatusOr<Gpu> CurrentGpu() {
  int index = 0;
  absl::Status status = ToStatus(cudaGetDevice(&index), "the current device");
  if (!status.ok()) return status;
  return DescribeGpu(index);
}

absl::Status UseDevice(int index) {
  return ToStatus(cudaSetDevice(index), "choosing the device");
}

}  // namespace attnd::cuda
