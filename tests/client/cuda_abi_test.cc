// That what the client knows of the CUDA driver is what cuda.h says.

#include "client/cuda_abi.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <type_traits>

namespace attnd::client::cuda {
namespace {

static_assert(kSuccess == CUDA_SUCCESS);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kHandlePosixFileDescriptor ==
              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);

static_assert(std::is_same_v<Device, CUdevice>);
static_assert(std::is_same_v<DevicePtr, CUdeviceptr>);
static_assert(std::is_same_v<AllocationHandle, CUmemGenericAllocationHandle>);
static_assert(sizeof(Result) == sizeof(CUresult));
static_assert(sizeof(Context) == sizeof(CUcontext));
static_assert(sizeof(Uuid) == sizeof(CUuuid));

static_assert(sizeof(MemLocation) == sizeof(CUmemLocation));
static_assert(offsetof(MemLocation, type) == offsetof(CUmemLocation, type));
static_assert(offsetof(MemLocation, id) == offsetof(CUmemLocation, id));

using Prop = CUmemAllocationProp;
static_assert(sizeof(MemAllocationProp) == sizeof(Prop));
static_assert(offsetof(MemAllocationProp, type) == offsetof(Prop, type));
static_assert(offsetof(MemAllocationProp, requested_handle_types) ==
              offsetof(Prop, requestedHandleTypes));
static_assert(offsetof(MemAllocationProp, location) ==
              offsetof(Prop, location));
static_assert(offsetof(MemAllocationProp, win32_handle_meta_data) ==
              offsetof(Prop, win32HandleMetaData));
static_assert(offsetof(MemAllocationProp, alloc_flags) ==
              offsetof(Prop, allocFlags));
static_assert(sizeof(MemAllocationProp::alloc_flags) ==
              sizeof(Prop::allocFlags));

static_assert(sizeof(MemAccessDesc) == sizeof(CUmemAccessDesc));
static_assert(offsetof(MemAccessDesc, location) ==
              offsetof(CUmemAccessDesc, location));
static_assert(offsetof(MemAccessDesc, flags) ==
              offsetof(CUmemAccessDesc, flags));

// How each parameter is passed.
template <typename T>
struct Passed {
  static constexpr size_t kSize = sizeof(T);
  static constexpr bool kPointer = std::is_pointer_v<T>;
};

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename... Ours, typename... Theirs>
struct SameCall<Result (*)(Ours...), CUresult (*)(Theirs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
      return false;
    } else {
      return ((Passed<Ours>::kSize == Passed<Theirs>::kSize &&
               Passed<Ours>::kPointer == Passed<Theirs>::kPointer) &&
              ...);
    }
  }();
};

// cuda.h renames functions that have later versions; what the client looks up
// must be what it means. The library is not linked, so nothing is called.
#define NAME_OF(function) NAME(function)
#define NAME(function) #function
#define EXPECT_SAME(member, symbol, function)                              \
  EXPECT_TRUE(                                                             \
      (SameCall<decltype(Functions::member), decltype(&function)>::value)) \
      << symbol;                                                           \
  EXPECT_EQ(std::string(symbol), NAME_OF(function))

std::string SymbolOf(const std::string& member) {
#define FIND(name, symbol, parameters) \
  if (member == #name) return symbol;
  ATTND_CUDA_FUNCTIONS(FIND)
#undef FIND
  return "";
}

TEST(CudaAbiTest, FunctionsAreThoseOfTheHeader) {
  EXPECT_SAME(init, SymbolOf("init"), cuInit);
  EXPECT_SAME(device_get, SymbolOf("device_get"), cuDeviceGet);
  EXPECT_SAME(primary_context_retain, SymbolOf("primary_context_retain"),
              cuDevicePrimaryCtxRetain);
  EXPECT_SAME(primary_context_release, SymbolOf("primary_context_release"),
              cuDevicePrimaryCtxRelease);
  EXPECT_SAME(context_push, SymbolOf("context_push"), cuCtxPushCurrent);
  EXPECT_SAME(context_pop, SymbolOf("context_pop"), cuCtxPopCurrent);
  EXPECT_SAME(context_synchronize, SymbolOf("context_synchronize"),
              cuCtxSynchronize);
  EXPECT_SAME(granularity, SymbolOf("granularity"),
              cuMemGetAllocationGranularity);
  EXPECT_SAME(create, SymbolOf("create"), cuMemCreate);
  EXPECT_SAME(export_handle, SymbolOf("export_handle"),
              cuMemExportToShareableHandle);
  EXPECT_SAME(reserve, SymbolOf("reserve"), cuMemAddressReserve);
  EXPECT_SAME(map, SymbolOf("map"), cuMemMap);
  EXPECT_SAME(set_access, SymbolOf("set_access"), cuMemSetAccess);
  EXPECT_SAME(unmap, SymbolOf("unmap"), cuMemUnmap);
  EXPECT_SAME(release, SymbolOf("release"), cuMemRelease);
  EXPECT_SAME(address_free, SymbolOf("address_free"), cuMemAddressFree);
  EXPECT_SAME(copy_to_device, SymbolOf("copy_to_device"), cuMemcpyHtoD);
  EXPECT_SAME(copy_to_host, SymbolOf("copy_to_host"), cuMemcpyDtoH);
  EXPECT_SAME(error_string, SymbolOf("error_string"), cuGetErrorString);
  EXPECT_SAME(uuid, "cuDeviceGetUuid_v2", cuDeviceGetUuid);
}

}  // namespace
}  // namespace attnd::client::cuda
