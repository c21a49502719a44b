#include "tests/kernels/cuda/fake_driver.h"

#include <cuda_runtime_api.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace attnd::testing {
namespace {

struct Allocation {
  int64_t size = 0;
  CUmemAllocationProp properties = {};
};
struct Reservation {
  size_t bytes = 0;
  bool mapped = false;
};

struct Fake {
  std::mutex mutex;
  FakeDriverUse use;
  std::map<int, Allocation> exported;  // by descriptor
  std::map<CUmemGenericAllocationHandle, Allocation> handles;
  CUmemGenericAllocationHandle next_handle = 1;
  std::map<CUdeviceptr, Reservation> reservations;
  std::string failing;
  CUresult error = CUDA_SUCCESS;
  int calls_left = 0;
  bool maps_parts = false;
};

Fake& TheFake() {
  static Fake* const fake = new Fake;
  return *fake;
}

// Locked; error() is what the call must answer first of all.
class Call {
 public:
  explicit Call(const char* name)
      : lock_(fake.mutex),
        error_(name == fake.failing && fake.calls_left-- <= 0 ? fake.error
                                                              : CUDA_SUCCESS) {}
  CUresult error() const { return error_; }

  Fake& fake = TheFake();

 private:
  std::lock_guard<std::mutex> lock_;
  const CUresult error_;
};

CUresult Import(CUmemGenericAllocationHandle* handle, void* os_handle,
                CUmemAllocationHandleType type) {
  Call call("cuMemImportFromShareableHandle");
  if (call.error() != CUDA_SUCCESS) return call.error();
  Fake& fake = call.fake;
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  auto found = fake.exported.find(fd);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      found == fake.exported.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = fake.next_handle++;
  fake.handles[*handle] = found->second;
  ++fake.use.handles;
  return CUDA_SUCCESS;
}

CUresult Properties(CUmemAllocationProp* properties,
                    CUmemGenericAllocationHandle handle) {
  Call call("cuMemGetAllocationPropertiesFromHandle");
  if (call.error() != CUDA_SUCCESS) return call.error();
  *properties = call.fake.handles.at(handle).properties;
  return CUDA_SUCCESS;
}

CUresult Granularity(size_t* granularity, const CUmemAllocationProp*,
                     CUmemAllocationGranularity_flags) {
  Call call("cuMemGetAllocationGranularity");
  *granularity = kFakeGranularity;
  return call.error();
}

CUresult Release(CUmemGenericAllocationHandle handle) {
  Call call("cuMemRelease");
  call.fake.use.handles -= static_cast<int>(call.fake.handles.erase(handle));
  return call.error();
}

CUresult Reserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                 unsigned long long) {
  Call call("cuMemAddressReserve");
  if (call.error() != CUDA_SUCCESS) return call.error();
  if (bytes > kFakeAddresses) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(
      std::aligned_alloc(kFakeGranularity, bytes));
  call.fake.reservations[*address] = {bytes, false};
  ++call.fake.use.reservations;
  return CUDA_SUCCESS;
}

CUresult Free(CUdeviceptr address, size_t bytes) {
  Call call("cuMemAddressFree");
  auto found = call.fake.reservations.find(address);
  if (found == call.fake.reservations.end() || found->second.bytes != bytes ||
      found->second.mapped) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::free(reinterpret_cast<void*>(address));
  call.fake.reservations.erase(found);
  --call.fake.use.reservations;
  return call.error();
}

CUresult Map(CUdeviceptr address, size_t bytes, size_t offset,
             CUmemGenericAllocationHandle handle, unsigned long long) {
  Call call("cuMemMap");
  if (call.error() != CUDA_SUCCESS) return call.error();
  const auto size = static_cast<size_t>(call.fake.handles.at(handle).size);
  auto found = call.fake.reservations.find(address);
  if (found == call.fake.reservations.end() || found->second.bytes != bytes ||
      found->second.mapped || offset != 0 || bytes > size ||
      (bytes < size && !call.fake.maps_parts)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  found->second.mapped = true;
  ++call.fake.use.mappings;
  return CUDA_SUCCESS;
}

CUresult Unmap(CUdeviceptr address, size_t bytes) {
  Call call("cuMemUnmap");
  auto found = call.fake.reservations.find(address);
  if (found == call.fake.reservations.end() || found->second.bytes != bytes ||
      !found->second.mapped) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  found->second.mapped = false;
  --call.fake.use.mappings;
  return call.error();
}

CUresult SetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc*,
                   size_t) {
  Call call("cuMemSetAccess");
  if (call.error() != CUDA_SUCCESS) return call.error();
  // What nobody has written yet shows.
  std::memset(reinterpret_cast<void*>(address), 0xAB, bytes);
  return CUDA_SUCCESS;
}

}  // namespace

FakeDriverUse FakeDriver() {
  const std::lock_guard<std::mutex> lock(TheFake().mutex);
  return TheFake().use;
}

Descriptor ExportFakeMemory(int64_t size,
                            const CUmemAllocationProp& properties) {
  // As the driver's own it is of no file system.
  Descriptor descriptor(eventfd(0, EFD_CLOEXEC));
  const std::lock_guard<std::mutex> lock(TheFake().mutex);
  TheFake().exported[descriptor.get()] = {size, properties};
  return descriptor;
}

CUmemAllocationProp PlainFakeMemory(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

void FailFakeDriver(std::string name, CUresult error, int calls) {
  const std::lock_guard<std::mutex> lock(TheFake().mutex);
  TheFake().failing = std::move(name);
  TheFake().error = error;
  TheFake().calls_left = calls;
}

void LetFakeDriverMapParts(bool allowed) {
  const std::lock_guard<std::mutex> lock(TheFake().mutex);
  TheFake().maps_parts = allowed;
}

}  // namespace attnd::testing

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult* found) {
  using namespace attnd::testing;  // NOLINT: the fakes, in this function alone
  static const std::map<std::string, void*> functions = {
      {"cuMemImportFromShareableHandle", reinterpret_cast<void*>(&Import)},
      {"cuMemGetAllocationPropertiesFromHandle",
       reinterpret_cast<void*>(&Properties)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&Granularity)},
      {"cuMemRelease", reinterpret_cast<void*>(&Release)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(&Reserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(&Free)},
      {"cuMemMap", reinterpret_cast<void*>(&Map)},
      {"cuMemUnmap", reinterpret_cast<void*>(&Unmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(&SetAccess)}};
  const auto at = functions.find(name);
  *found = at == functions.end() ? cudaDriverEntryPointSymbolNotFound
                                 : cudaDriverEntryPointSuccess;
  if (at != functions.end()) *function = at->second;
  return cudaSuccess;
}
