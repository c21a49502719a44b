#include "tests/kernels/cuda/exportable_memory.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/driver.h"

namespace attnd::testing {
namespace {

using cuda::FindDriverFunction;

absl::Status Check(CUresult error, const char* what) {
  if (error == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(what, ": error ", static_cast<int>(error)));
}

// Calls the driver's function `name`, of the type of `declared`.
template <class... Parameters, class... Arguments>
CUresult Call(const char* name, CUresult (*)(Parameters...),
              Arguments... arguments) {
  auto* function =
      FindDriverFunction<CUresult(Parameters...)>(name, /*version=*/10020);
  return function == nullptr ? CUDA_ERROR_NOT_FOUND : function(arguments...);
}
#define ATTND_CALL(function, ...) \
  Call(#function, static_cast<decltype(&function)>(nullptr), __VA_ARGS__)

CUmemAllocationProp Properties(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExportableMemory>> ExportableMemory::Create(
    int64_t bytes, int device) {
  if (cudaSetDevice(device) != cudaSuccess) {
    return absl::InternalError("choosing the device");
  }
  std::unique_ptr<ExportableMemory> memory(new ExportableMemory);
  const CUmemAllocationProp properties = Properties(device);
  absl::Status status =
      Check(ATTND_CALL(cuMemGetAllocationGranularity, &memory->granularity_,
                       &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            "granularity");
  if (!status.ok()) return status;
  const size_t unit = memory->granularity_;
  const size_t size = (static_cast<size_t>(bytes) + unit - 1) / unit * unit;
  status =
      Check(ATTND_CALL(cuMemCreate, &memory->handle_, size, &properties, 0ull),
            "allocation");
  if (!status.ok()) return status;
  memory->created_ = true;
  memory->bytes_ = size;
  CUdeviceptr address = 0;
  status = Check(ATTND_CALL(cuMemAddressReserve, &address, 2 * size, size_t{0},
                            CUdeviceptr{0}, 0ull),
                 "addresses");
  if (!status.ok()) return status;
  memory->address_ = address;
  status = Check(
      ATTND_CALL(cuMemMap, address, size, size_t{0}, memory->handle_, 0ull),
      "mapping");
  if (!status.ok()) return status;
  memory->mapped_ = true;
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  status = Check(ATTND_CALL(cuMemSetAccess, address, size, &access, size_t{1}),
                 "access");
  if (!status.ok()) return status;
  return memory;
}

ExportableMemory::~ExportableMemory() {
  if (mapped_) ATTND_CALL(cuMemUnmap, address_, bytes_);
  if (address_ != 0) ATTND_CALL(cuMemAddressFree, address_, 2 * bytes_);
  if (created_) ATTND_CALL(cuMemRelease, handle_);
}

absl::StatusOr<Descriptor> ExportableMemory::Export() const {
  int fd = -1;
  absl::Status status =
      Check(ATTND_CALL(cuMemExportToShareableHandle, &fd, handle_,
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull),
            "export");
  if (!status.ok()) return status;
  return Descriptor(fd);
}

CUresult ExportableMemory::TryToMap(int64_t bytes) const {
  const auto size = static_cast<size_t>(bytes);
  CUdeviceptr address = 0;
  CUresult error = ATTND_CALL(cuMemAddressReserve, &address, size, size_t{0},
                              CUdeviceptr{0}, 0ull);
  if (error != CUDA_SUCCESS) return error;
  error = ATTND_CALL(cuMemMap, address, size, size_t{0}, handle_, 0ull);
  if (error == CUDA_SUCCESS) ATTND_CALL(cuMemUnmap, address, size);
  ATTND_CALL(cuMemAddressFree, address, size);
  return error;
}

}  // namespace attnd::testing
