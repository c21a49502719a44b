#ifndef ATTND_KERNELS_CUDA_DEVICE_IMPORTED_BUFFER_H_
#define ATTND_KERNELS_CUDA_DEVICE_IMPORTED_BUFFER_H_

// Device memory that another process has allocated with cuMemCreate and
// exported as a file descriptor.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/device_buffer.h"

namespace attnd::cuda {

// Reserved addresses with an allocation mapped to all of them, both of which go
// when it does. Nothing may be running that uses them.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Maps `bytes` of the allocation, for device `device` to read and write. What
  // was done before an error goes with this.
  CUresult Map(CUmemGenericAllocationHandle handle, size_t bytes, int device);
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  CUdeviceptr address_ = 0;  // 0: nothing is reserved
  size_t bytes_ = 0;
  bool mapped_ = false;
};

// The memory stays as long as this does, whether or not its own process still
// has it; what is in it may change at any time. Nobody tells when that process
// has written: what is enqueued on a stream finds what was there by then.
class ImportedBuffer : public StreamBuffer {
 public:
  // All `bytes` of the allocation that `fd`, which stays the caller's, stands
  // for. Makes what others pass it no error of the device:
  //   INVALID_ARGUMENT   no such memory, of another size or another device
  //   RESOURCE_EXHAUSTED no addresses or no memory for it now
  //   UNIMPLEMENTED      the driver cannot
  //   INTERNAL           the device is broken
  static absl::StatusOr<std::shared_ptr<ImportedBuffer>> Create(
      std::shared_ptr<Landing> landing, int fd, int64_t bytes);
  // Waits for what streams enqueued before Release.
  ~ImportedBuffer() override;

  std::byte* data() const override { return mapping_.data(); }
  // FAILED_PRECONDITION: what is there is the other process' to write.
  absl::Status Write(int64_t offset,
                     absl::Span<const ConstHostSpan> from) override;
  absl::Status JoinTo(cudaStream_t stream) const override;
  absl::Status Release(cudaEvent_t event) const override;

 private:
  explicit ImportedBuffer(std::shared_ptr<Landing> landing)
      : landing_(std::move(landing)) {}
  // Maps the allocation, if it is as large as that and of this device.
  absl::Status Map(CUmemGenericAllocationHandle handle, int64_t bytes);

  const std::shared_ptr<Landing> landing_;
  // Behind the last that a stream does with it, in the order of frees().
  cudaEvent_t released_ = nullptr;
  Mapping mapping_;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_IMPORTED_BUFFER_H_
