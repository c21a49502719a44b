#ifndef ATTND_KERNELS_CUDA_RATES_H_
#define ATTND_KERNELS_CUDA_RATES_H_

#include "kernels/cuda/device/gpu.h"
#include "kernels/device_rates.h"

namespace attnd::cuda {

// What a GPU's data sheet and our kernels on its kin suggest, before anything
// has been measured on it. Knows no CUDA.
DeviceRates NominalRates(const Gpu& gpu);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_RATES_H_
