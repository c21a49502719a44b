#ifndef ATTND_KERNELS_CUDA_SM80_KERNELS_H_
#define ATTND_KERNELS_CUDA_SM80_KERNELS_H_

// The compiled kernels, one translation unit each (see instance.cu.in).

#include <cstdint>

#include "kernels/attention.h"

namespace attnd::cuda::sm80 {

enum class Kind : uint8_t { kPrefill, kDecode, kFloat32 };

struct Kernel {
  const char* name = nullptr;      // e.g. "cuda/sm80/prefill_bf16_d128"
  const void* function = nullptr;  // void(LaunchParams)
  int rows = 0;                    // of a tile
  int threads = 0;
  int shared_bytes = 0;  // dynamic
  int dim = 0;           // what head_dim and value_dim are rounded up to
};

// Defined by the instances.
template <Kind kKind, DType kDType, int kDim>
Kernel MakeKernel();

// The kernel for problems of these dims. kFloat32 goes with f32, the others do
// with f16 and bf16.
const Kernel& FindKernel(Kind kind, DType dtype, int64_t head_dim,
                         int64_t value_dim);

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_KERNELS_H_
