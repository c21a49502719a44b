#ifndef ATTND_TESTS_KERNELS_CUDA_FAKE_DRIVER_H_
#define ATTND_TESTS_KERNELS_CUDA_FAKE_DRIVER_H_

// What the driver does with memory that other processes export, without a GPU:
// fake_runtime.h has the rest. What is mapped is memory of the host.

#include <cuda.h>

#include <cstdint>
#include <string>

#include "base/descriptor.h"

namespace attnd::testing {

inline constexpr int64_t kFakeGranularity = int64_t{2} << 20;
// More than this cannot be reserved.
inline constexpr int64_t kFakeAddresses = int64_t{1} << 30;

// What the process holds of others' memory now.
struct FakeDriverUse {
  int handles = 0;
  int reservations = 0;
  int mappings = 0;
};
FakeDriverUse FakeDriver();

// Memory that another process has exported, until the descriptor is closed.
// `size` is a multiple of kFakeGranularity.
Descriptor ExportFakeMemory(int64_t size,
                            const CUmemAllocationProp& properties);
// Of plain memory on device `device`.
CUmemAllocationProp PlainFakeMemory(int device);

// From now on the driver's function `name` fails with `error`, after it has
// succeeded `calls` times more. An empty name: none does.
void FailFakeDriver(std::string name, CUresult error, int calls = 0);
// Whether a mapping may have less than the whole of an allocation.
void LetFakeDriverMapParts(bool allowed);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_FAKE_DRIVER_H_
