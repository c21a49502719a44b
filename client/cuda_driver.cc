#include "client/cuda_driver.h"

#include <dlfcn.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attnd::client {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

std::string LastDlError() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown";
}

template <typename Function>
absl::Status Find(void* library, const char* symbol, Function& function) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (function != nullptr) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      "the CUDA driver is too old: ", kLibrary, " has no ", symbol));
}

// The library stays: it has threads of its own.
absl::StatusOr<cuda::Functions> Load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("there is no CUDA driver: ", LastDlError()));
  }
  cuda::Functions functions;
  absl::Status status;
#define ATTND_CUDA_FIND(name, symbol, parameters) \
  status.Update(Find(library, symbol, functions.name));
  ATTND_CUDA_FUNCTIONS(ATTND_CUDA_FIND)
#undef ATTND_CUDA_FIND
  // Tells the instances of a GPU that is shared apart; drivers before 11.4 have
  // the other alone.
  if (!Find(library, "cuDeviceGetUuid_v2", functions.uuid).ok()) {
    status.Update(Find(library, "cuDeviceGetUuid", functions.uuid));
  }
  if (!status.ok()) return status;
  return functions;
}

cuda::DevicePtr Address(const void* data) {
  return reinterpret_cast<cuda::DevicePtr>(data);
}

}  // namespace

// Makes the GPU's context the thread's own for as long as it lives.
class CudaGpu::Current {
 public:
  explicit Current(const CudaGpu& gpu)
      : gpu_(gpu), result_(gpu.functions_.context_push(gpu.context_)) {}
  ~Current() {
    cuda::Context popped = nullptr;
    if (result_ == cuda::kSuccess) gpu_.functions_.context_pop(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  absl::Status status() const {
    return gpu_.Error(result_, "cuCtxPushCurrent");
  }

 private:
  const CudaGpu& gpu_;
  const cuda::Result result_;
};

absl::StatusOr<std::shared_ptr<CudaGpu>> CudaGpu::Open(int index) {
  static const auto& functions = *new absl::StatusOr<cuda::Functions>(Load());
  if (!functions.ok()) return functions.status();
  return Open(*functions, index);
}

absl::StatusOr<std::shared_ptr<CudaGpu>> CudaGpu::Open(
    const cuda::Functions& functions, int index) {
  cuda::Device device = 0;
  cuda::Result result = functions.init(0);
  const char* step = "cuInit";
  if (result == cuda::kSuccess) {
    step = "cuDeviceGet";
    result = functions.device_get(&device, index);
  }
  // The context is null, and not released, until it is retained.
  const std::shared_ptr<CudaGpu> gpu(new CudaGpu(functions, device));
  if (result != cuda::kSuccess) {
    return absl::NotFoundError(absl::StrCat(
        "no GPU ", index, ": ", gpu->Error(result, step).message()));
  }
  cuda::Uuid uuid = {};
  absl::Status status =
      gpu->Error(functions.uuid(&uuid, device), "cuDeviceGetUuid");
  if (!status.ok()) return status;
  std::memcpy(gpu->uuid_.data(), uuid.bytes, gpu->uuid_.size());
  cuda::Context context = nullptr;
  status = gpu->Error(functions.primary_context_retain(&context, device),
                      "cuDevicePrimaryCtxRetain");
  if (!status.ok()) return status;
  gpu->context_ = context;
  return gpu;
}

CudaGpu::~CudaGpu() {
  if (context_ != nullptr) functions_.primary_context_release(device_);
}

absl::Status CudaGpu::Error(cuda::Result result, absl::string_view what) const {
  if (result == cuda::kSuccess) return absl::OkStatus();
  const char* text = nullptr;
  functions_.error_string(result, &text);
  const std::string message = absl::StrCat(
      what, ": ", text != nullptr ? text : absl::StrCat("error ", result));
  switch (result) {
    case cuda::kOutOfMemory:
      return absl::ResourceExhaustedError(message);
    case cuda::kNoDevice:
    case cuda::kInvalidDevice:
      return absl::NotFoundError(message);
    case cuda::kNotSupported:
      return absl::UnimplementedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status CudaGpu::CopyToDevice(const void* from, int64_t bytes,
                                   void* to) const {
  if (bytes == 0) return absl::OkStatus();
  const Current current(*this);
  absl::Status status = current.status();
  if (!status.ok()) return status;
  status = Error(
      functions_.copy_to_device(Address(to), from, static_cast<size_t>(bytes)),
      "cuMemcpyHtoD");
  // It may return once the bytes have been taken, before they are there.
  if (status.ok()) {
    status = Error(functions_.context_synchronize(), "cuCtxSynchronize");
  }
  return status;
}

absl::Status CudaGpu::CopyToHost(const void* from, int64_t bytes,
                                 void* to) const {
  if (bytes == 0) return absl::OkStatus();
  const Current current(*this);
  absl::Status status = current.status();
  if (!status.ok()) return status;
  return Error(
      functions_.copy_to_host(to, Address(from), static_cast<size_t>(bytes)),
      "cuMemcpyDtoH");
}

absl::StatusOr<std::unique_ptr<CudaMemory>> CudaMemory::Allocate(
    std::shared_ptr<CudaGpu> gpu, int64_t bytes) {
  // As long as its context is the thread's, which may be longer than the
  // memory.
  const std::shared_ptr<CudaGpu> kept = gpu;
  const CudaGpu::Current current(*kept);
  absl::Status status = current.status();
  if (!status.ok()) return status;
  cuda::MemAllocationProp properties = {};
  properties.type = cuda::kAllocationPinned;
  properties.requested_handle_types = cuda::kHandlePosixFileDescriptor;
  properties.location = {cuda::kLocationDevice, gpu->device_};
  size_t step = 0;
  status = gpu->Error(gpu->functions_.granularity(&step, &properties,
                                                  cuda::kGranularityMinimum),
                      "cuMemGetAllocationGranularity");
  if (!status.ok()) return status;
  const auto asked = static_cast<size_t>(bytes);
  const size_t steps = asked / step + (asked % step != 0 ? 1 : 0);
  std::unique_ptr<CudaMemory> memory(
      new CudaMemory(std::move(gpu), steps * step));
  status = memory->Create(properties);
  if (!status.ok()) return status;
  return memory;
}

absl::Status CudaMemory::Create(const cuda::MemAllocationProp& properties) {
  const cuda::Functions& driver = gpu_->functions_;
  absl::Status status = gpu_->Error(
      driver.create(&handle_, bytes_, &properties, 0), "cuMemCreate");
  if (!status.ok()) return status;
  created_ = true;
  status = gpu_->Error(driver.reserve(&address_, bytes_, 0, 0, 0),
                       "cuMemAddressReserve");
  if (!status.ok()) return status;
  status = gpu_->Error(driver.map(address_, bytes_, 0, handle_, 0), "cuMemMap");
  if (!status.ok()) return status;
  mapped_ = true;
  const cuda::MemAccessDesc access = {properties.location,
                                      cuda::kAccessReadWrite};
  return gpu_->Error(driver.set_access(address_, bytes_, &access, 1),
                     "cuMemSetAccess");
}

CudaMemory::~CudaMemory() {
  const CudaGpu::Current current(*gpu_);
  const cuda::Functions& driver = gpu_->functions_;
  if (mapped_) driver.unmap(address_, bytes_);
  if (address_ != 0) driver.address_free(address_, bytes_);
  if (created_) driver.release(handle_);
}

absl::StatusOr<Descriptor> CudaMemory::Export() const {
  const CudaGpu::Current current(*gpu_);
  absl::Status status = current.status();
  if (!status.ok()) return status;
  int fd = -1;
  status = gpu_->Error(gpu_->functions_.export_handle(
                           &fd, handle_, cuda::kHandlePosixFileDescriptor, 0),
                       "cuMemExportToShareableHandle");
  if (!status.ok()) return status;
  return Descriptor(fd);
}

}  // namespace attnd::client
