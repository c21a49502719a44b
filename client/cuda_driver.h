#ifndef ATTND_CLIENT_CUDA_DRIVER_H_
#define ATTND_CLIENT_CUDA_DRIVER_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/descriptor.h"
#include "client/cuda_abi.h"

namespace attnd::client {

// A GPU in this process: its primary context, which CUDA's runtime uses too.
// Thread-safe.
class CudaGpu {
 public:
  // Of this index, as the driver counts those that the process sees. Loads the
  // driver (libcuda.so.1) when first used. NOT_FOUND: there is no driver, or no
  // such GPU.
  static absl::StatusOr<std::shared_ptr<CudaGpu>> Open(int index);
  // The same with these functions instead of the driver's.
  static absl::StatusOr<std::shared_ptr<CudaGpu>> Open(
      const cuda::Functions& functions, int index);

  ~CudaGpu();
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;

  const std::array<uint8_t, 16>& uuid() const { return uuid_; }

  // Copies between this GPU's memory, which need not have been allocated here,
  // and the host's. It has happened, for other processes too, when they return.
  absl::Status CopyToDevice(const void* from, int64_t bytes, void* to) const;
  absl::Status CopyToHost(const void* from, int64_t bytes, void* to) const;

 private:
  friend class CudaMemory;
  class Current;

  CudaGpu(const cuda::Functions& functions, cuda::Device device)
      : functions_(functions), device_(device) {}

  absl::Status Error(cuda::Result result, absl::string_view what) const;

  const cuda::Functions functions_;
  const cuda::Device device_;
  cuda::Context context_ = nullptr;
  std::array<uint8_t, 16> uuid_ = {};
};

// Memory of a GPU that can be exported, mapped there.
class CudaMemory {
 public:
  // At least `bytes` > 0. RESOURCE_EXHAUSTED: there is no such memory;
  // UNIMPLEMENTED: the GPU or its driver cannot export any.
  static absl::StatusOr<std::unique_ptr<CudaMemory>> Allocate(
      std::shared_ptr<CudaGpu> gpu, int64_t bytes);

  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are
  // these.
  void* data() const { return reinterpret_cast<void*>(address_); }
  int64_t bytes() const { return static_cast<int64_t>(bytes_); }
  const CudaGpu& gpu() const { return *gpu_; }
  // A descriptor of all of it, for another process.
  absl::StatusOr<Descriptor> Export() const;

 private:
  CudaMemory(std::shared_ptr<CudaGpu> gpu, size_t bytes)
      : gpu_(std::move(gpu)), bytes_(bytes) {}

  absl::Status Create(const cuda::MemAllocationProp& properties);

  const std::shared_ptr<CudaGpu> gpu_;
  const size_t bytes_;
  cuda::AllocationHandle handle_ = 0;
  cuda::DevicePtr address_ = 0;
  bool created_ = false, mapped_ = false;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CUDA_DRIVER_H_
