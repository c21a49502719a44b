#ifndef ATTND_KERNELS_CUDA_SM80_KERNELS_H_
#define ATTND_KERNELS_CUDA_SM80_KERNELS_H_

// The compiled kernels, one translation unit each (see instance.cu.in and
// backward_instance.cu.in).

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/launch/kernel.h"
#include "kernels/cuda/sm80/backward/config.h"

namespace attnd::cuda::sm80 {

enum class Kind : uint8_t { kPrefill, kDecode, kFloat32 };

// Defined by the instances.
template <Kind kKind, DType kDType, int kDim>
Kernel MakeKernel();
template <DType kDType, int kDim, Memory kMemory>
Kernel MakeBackwardKernel();

// The kernel for problems of these dims. kFloat32 goes with f32, the others do
// with f16 and bf16.
const Kernel& FindKernel(Kind kind, DType dtype, int64_t head_dim,
                         int64_t value_dim);

// The kernel for backward of problems of this type and these dims, on a GPU
// that gives a block of threads up to `shared_bytes`; it has the same dim on
// all of them.
const Kernel& FindBackwardKernel(DType dtype, int64_t head_dim,
                                 int64_t value_dim, int shared_bytes);

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_KERNELS_H_
