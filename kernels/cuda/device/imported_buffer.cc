#include "kernels/cuda/device/imported_buffer.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/device/driver.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// What of the driver is needed here; CUDA 10.2 had all of it.
struct Driver {
  decltype(&cuMemImportFromShareableHandle) import;
  decltype(&cuMemGetAllocationPropertiesFromHandle) properties;
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemRelease) release;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;

  bool complete() const {
    return import != nullptr && properties != nullptr &&
           granularity != nullptr && release != nullptr && reserve != nullptr &&
           free != nullptr && map != nullptr && unmap != nullptr &&
           set_access != nullptr;
  }
};

template <class Function>
void Find(const char* name, Function*& function) {
  constexpr unsigned kVersion = 10020;
  function = FindDriverFunction<Function>(name, kVersion);
}

const Driver& TheDriver() {
  static const Driver driver = [] {
    Driver d;
    Find("cuMemImportFromShareableHandle", d.import);
    Find("cuMemGetAllocationPropertiesFromHandle", d.properties);
    Find("cuMemGetAllocationGranularity", d.granularity);
    Find("cuMemRelease", d.release);
    Find("cuMemAddressReserve", d.reserve);
    Find("cuMemAddressFree", d.free);
    Find("cuMemMap", d.map);
    Find("cuMemUnmap", d.unmap);
    Find("cuMemSetAccess", d.set_access);
    return d;
  }();
  return driver;
}

// Of what others sent: whatever the driver says about it, the device is well.
absl::Status Refused(CUresult error, absl::string_view what) {
  if (error == CUDA_SUCCESS) return absl::OkStatus();
  const std::string message =
      absl::StrCat(what, " (error ", static_cast<int>(error), ")");
  return error == CUDA_ERROR_OUT_OF_MEMORY
             ? absl::ResourceExhaustedError(message)
             : absl::InvalidArgumentError(message);
}

// GPU memory comes as a descriptor of one of the driver's device files, or of
// none at all. What lies in a file system or is a socket is not shown to the
// driver: who serves such a file could keep it waiting.
bool MayBeGpuMemory(int fd) {
  struct stat file;
  if (fstat(fd, &file) != 0) return false;
  const mode_t type = file.st_mode & S_IFMT;
  return type == S_IFCHR || type == 0;
}

// Of an allocation, until it is mapped or refused.
class Handle {
 public:
  ~Handle() {
    if (held_) TheDriver().release(handle_);
  }
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  CUresult Import(int fd) {
    // The driver takes the number where others take a pointer.
    auto* os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
    const CUresult error = TheDriver().import(
        &handle_, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    held_ = error == CUDA_SUCCESS;
    return error;
  }
  CUmemGenericAllocationHandle get() const { return handle_; }

 private:
  CUmemGenericAllocationHandle handle_ = 0;
  bool held_ = false;
};

// Whether it is plain memory on the device.
absl::Status CheckKind(const CUmemAllocationProp& properties, int device) {
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties.allocFlags.usage != 0) {
    return absl::InvalidArgumentError("it is not plain memory of a GPU");
  }
  if (properties.location.id != device) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is memory of GPU ", properties.location.id,
                     ", and is to be used by GPU ", device));
  }
  return absl::OkStatus();
}

}  // namespace

Mapping::~Mapping() {
  if (address_ == 0) return;
  if (mapped_) TheDriver().unmap(address_, bytes_);
  TheDriver().free(address_, bytes_);
}

CUresult Mapping::Map(CUmemGenericAllocationHandle handle, size_t bytes,
                      int device) {
  const Driver& driver = TheDriver();
  CUdeviceptr address = 0;
  CUresult error = driver.reserve(&address, bytes, 0, 0, 0);
  if (error != CUDA_SUCCESS) return error;
  address_ = address;
  bytes_ = bytes;
  error = driver.map(address_, bytes_, 0, handle, 0);
  if (error != CUDA_SUCCESS) return error;
  mapped_ = true;
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver.set_access(address_, bytes_, &access, 1);
}

absl::StatusOr<std::shared_ptr<ImportedBuffer>> ImportedBuffer::Create(
    std::shared_ptr<Landing> landing, int fd, int64_t bytes) {
  if (!TheDriver().complete()) {
    return absl::UnimplementedError("the driver imports no memory");
  }
  if (!MayBeGpuMemory(fd)) {
    return absl::InvalidArgumentError("the descriptor is not of GPU memory");
  }
  // Imports need the context that this makes current.
  absl::Status status = Broken(UseDevice(landing->device()));
  if (!status.ok()) return status;
  std::shared_ptr<ImportedBuffer> buffer(
      new ImportedBuffer(std::move(landing)));
  Handle handle;
  status = Refused(handle.Import(fd), "the descriptor is not of GPU memory");
  if (status.ok()) status = buffer->Map(handle.get(), bytes);
  if (!status.ok()) return status;
  status = Broken(ToStatus(
      cudaEventCreateWithFlags(&buffer->released_,
                               cudaEventDisableTiming | cudaEventBlockingSync),
      "event of imported memory"));
  if (!status.ok()) return status;
  return buffer;
}

absl::Status ImportedBuffer::Map(CUmemGenericAllocationHandle handle,
                                 int64_t bytes) {
  const Driver& driver = TheDriver();
  const int device = landing_->device();
  CUmemAllocationProp properties = {};
  absl::Status status = Refused(driver.properties(&properties, handle),
                                "it is not plain memory of a GPU");
  if (status.ok()) status = CheckKind(properties, device);
  size_t granularity = 0;
  if (status.ok()) {
    status = Refused(driver.granularity(&granularity, &properties,
                                        CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                     "it is of no size that can be mapped");
  }
  if (!status.ok()) return status;
  const auto size = static_cast<size_t>(bytes);
  if (bytes <= 0 || size % granularity != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU memory of ", bytes, " bytes: must be a multiple of ",
                     granularity));
  }
  // The driver does not tell how large an allocation is, only that it has no
  // more than what it maps of it. So what has more than that is larger.
  {
    Mapping larger;
    if (larger.Map(handle, size + granularity, device) == CUDA_SUCCESS) {
      return absl::InvalidArgumentError(
          absl::StrCat("the GPU memory has more than ", bytes, " bytes"));
    }
  }
  return Refused(mapping_.Map(handle, size, device),
                 absl::StrCat("the GPU memory has not ", bytes, " bytes"));
}

ImportedBuffer::~ImportedBuffer() {
  UseDevice(landing_->device()).IgnoreError();
  if (released_ == nullptr) return;
  // An error says that the device runs nothing of this process any more.
  ToStatus(cudaEventSynchronize(released_), "the device").IgnoreError();
  cudaEventDestroy(released_);
}

absl::Status ImportedBuffer::Write(int64_t, absl::Span<const ConstHostSpan>) {
  return absl::FailedPreconditionError("memory of another process");
}

absl::Status ImportedBuffer::JoinTo(cudaStream_t) const {
  return absl::OkStatus();
}

absl::Status ImportedBuffer::Release(cudaEvent_t event) const {
  absl::Status status = ToStatus(
      cudaStreamWaitEvent(landing_->frees(), event, 0), "imported memory");
  // Whichever stream's Release records it last, it is behind the ends of all.
  if (status.ok()) {
    status = ToStatus(cudaEventRecord(released_, landing_->frees()),
                      "imported memory");
  }
  return Broken(std::move(status));
}

}  // namespace attnd::cuda
