#ifndef ATTND_KERNELS_CUDA_DEVICE_DRIVER_H_
#define ATTND_KERNELS_CUDA_DEVICE_DRIVER_H_

// Functions of the driver, which this library is not linked with.

#include <cuda_runtime_api.h>

namespace attnd::cuda {

// The function of this name as it is since CUDA `version`; null if the driver
// is too old to have it, or is not there. Thread-safe.
template <class Function>
Function* FindDriverFunction(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      name, &function, version, cudaEnableDefault, &found);
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess
             ? reinterpret_cast<Function*>(function)
             : nullptr;
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_DRIVER_H_
