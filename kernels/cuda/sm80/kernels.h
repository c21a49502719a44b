#ifndef ATTND_KERNELS_CUDA_SM80_KERNELS_H_
#define ATTND_KERNELS_CUDA_SM80_KERNELS_H_

// The compiled kernels, those of both 16-bit types together (see instance.cu.in
// and backward/instance.cu.in).

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/launch/kernel.h"
#include "kernels/cuda/sm80/backward/config.h"

namespace attnd::cuda::sm80 {

enum class Kind : uint8_t { kPrefill, kDecode, kFloat32 };

// The instances that CMake stamps define these.
template <Kind kKind, DType kDType, int kDim>
Kernel MakeKernel();
template <DType kDType, int kDim, Memory kMemory>
Kernel MakeBackwardKernel();

// The forward kernel for problems of these dims. kFloat32 takes f32 inputs, the
// other kinds f16 and bf16.
const Kernel& FindKernel(Kind kind, DType dtype, int64_t head_dim,
                         int64_t value_dim);

// The backward kernel for problems of this type and these dims, on a GPU that
// gives a block of threads up to `shared_bytes` of shared memory. Its dim does
// not depend on the GPU.
const Kernel& FindBackwardKernel(DType dtype, int64_t head_dim,
                                 int64_t value_dim, int shared_bytes);

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_KERNELS_H_
