#ifndef ATTND_KERNELS_CUDA_SM90_UNIFORM_CUH_
#define ATTND_KERNELS_CUDA_SM90_UNIFORM_CUH_

namespace attnd::cuda::sm90 {

// `x`, which is the same in all lanes of a warp, said such that the compiler
// knows: what follows from it, as wgmma's descriptors, then takes uniform
// registers, and loops and branches that it decides do not part the warp. For
// all lanes.
__device__ inline int Uniform(int x) { return __shfl_sync(0xffffffff, x, 0); }

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_UNIFORM_CUH_
