#ifndef ATTND_KERNELS_CUDA_SM90_UNIFORM_CUH_
#define ATTND_KERNELS_CUDA_SM90_UNIFORM_CUH_

namespace attnd::cuda::sm90 {

// Returns x, which must be the same in all lanes of the warp, all of which call
// this. The compiler then knows that it is: what follows from x, such as
// wgmma's descriptors, takes uniform registers, and loops and branches that x
// decides do not part the warp.
__device__ inline int Uniform(int x) { return __shfl_sync(0xffffffff, x, 0); }

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_UNIFORM_CUH_
