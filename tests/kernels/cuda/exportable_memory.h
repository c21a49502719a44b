#ifndef ATTND_TESTS_KERNELS_CUDA_EXPORTABLE_MEMORY_H_
#define ATTND_TESTS_KERNELS_CUDA_EXPORTABLE_MEMORY_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace attnd::testing {

// Device memory that can be exported to another process. Addresses after its
// end are reserved and not mapped: who reads or writes there is found out.
class ExportableMemory {
 public:
  // At least `bytes` on device `device`, which becomes the current one.
  static absl::StatusOr<std::unique_ptr<ExportableMemory>> Create(int64_t bytes,
                                                                  int device);
  ~ExportableMemory();
  ExportableMemory(const ExportableMemory&) = delete;
  ExportableMemory& operator=(const ExportableMemory&) = delete;

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  // A multiple of the granularity.
  int64_t bytes() const { return static_cast<int64_t>(bytes_); }
  int64_t granularity() const { return static_cast<int64_t>(granularity_); }
  absl::StatusOr<Descriptor> Export() const;
  // What the driver says to a mapping of the first `bytes` of it, elsewhere.
  CUresult TryToMap(int64_t bytes) const;

 private:
  ExportableMemory() = default;

  size_t granularity_ = 0, bytes_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr address_ = 0;
  bool created_ = false, mapped_ = false;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_EXPORTABLE_MEMORY_H_
