#ifndef ATTND_CLIENT_CUDA_ABI_H_
#define ATTND_CLIENT_CUDA_ABI_H_

// What the client uses of the CUDA driver, as cuda.h has it: programs that have
// no CUDA compile against the client, and run with it. The numbers and layouts
// are the driver's for good, and a test compares them with cuda.h.

#include <cstddef>
#include <cstdint>

namespace attnd::client::cuda {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kNotSupported = 801;

using Device = int;
using Context = struct ContextOfDriver*;
using DevicePtr = unsigned long long;         // NOLINT(google-runtime-int)
using AllocationHandle = unsigned long long;  // NOLINT(google-runtime-int)

struct Uuid {
  char bytes[16];
};

inline constexpr int kLocationDevice = 1;
struct MemLocation {
  int type;
  int id;
};

inline constexpr int kAllocationPinned = 1;
inline constexpr int kHandlePosixFileDescriptor = 1;
struct MemAllocationProp {
  int type;
  int requested_handle_types;
  MemLocation location;
  void* win32_handle_meta_data;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;  // NOLINT(google-runtime-int)
    unsigned char reserved[4];
  } alloc_flags;
};

inline constexpr int kAccessReadWrite = 3;
struct MemAccessDesc {
  MemLocation location;
  int flags;
};

inline constexpr int kGranularityMinimum = 0;

// The functions, by their names in the library, and what they are called here.
// X(our name, the library's name, parameters)
#define ATTND_CUDA_FUNCTIONS(X)                                                \
  X(init, "cuInit", (unsigned))                                                \
  X(device_get, "cuDeviceGet", (Device*, int))                                 \
  X(primary_context_retain, "cuDevicePrimaryCtxRetain", (Context*, Device))    \
  X(primary_context_release, "cuDevicePrimaryCtxRelease_v2", (Device))         \
  X(context_push, "cuCtxPushCurrent_v2", (Context))                            \
  X(context_pop, "cuCtxPopCurrent_v2", (Context*))                             \
  X(context_synchronize, "cuCtxSynchronize", ())                               \
  X(granularity, "cuMemGetAllocationGranularity",                              \
    (size_t*, const MemAllocationProp*, int))                                  \
  X(create, "cuMemCreate",                                                     \
    (AllocationHandle*, size_t, const MemAllocationProp*, unsigned long long)) \
  X(export_handle, "cuMemExportToShareableHandle",                             \
    (void*, AllocationHandle, int, unsigned long long))                        \
  X(reserve, "cuMemAddressReserve",                                            \
    (DevicePtr*, size_t, size_t, DevicePtr, unsigned long long))               \
  X(map, "cuMemMap",                                                           \
    (DevicePtr, size_t, size_t, AllocationHandle, unsigned long long))         \
  X(set_access, "cuMemSetAccess",                                              \
    (DevicePtr, size_t, const MemAccessDesc*, size_t))                         \
  X(unmap, "cuMemUnmap", (DevicePtr, size_t))                                  \
  X(release, "cuMemRelease", (AllocationHandle))                               \
  X(address_free, "cuMemAddressFree", (DevicePtr, size_t))                     \
  X(copy_to_device, "cuMemcpyHtoD_v2", (DevicePtr, const void*, size_t))       \
  X(copy_to_host, "cuMemcpyDtoH_v2", (void*, DevicePtr, size_t))               \
  X(error_string, "cuGetErrorString", (Result, const char**))

struct Functions {
  // NOLINTBEGIN(bugprone-macro-parentheses): a declaration has none.
#define ATTND_CUDA_MEMBER(name, symbol, parameters) \
  Result(*name) parameters = nullptr;
  // NOLINTEND(bugprone-macro-parentheses)
  ATTND_CUDA_FUNCTIONS(ATTND_CUDA_MEMBER)
#undef ATTND_CUDA_MEMBER
  // cuDeviceGetUuid_v2, or of a driver older than that cuDeviceGetUuid.
  Result (*uuid)(Uuid*, Device) = nullptr;
};

}  // namespace attnd::client::cuda

#endif  // ATTND_CLIENT_CUDA_ABI_H_
