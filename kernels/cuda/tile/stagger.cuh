#ifndef ATTND_KERNELS_CUDA_TILE_STAGGER_CUH_
#define ATTND_KERNELS_CUDA_TILE_STAGGER_CUH_

// In a build with ATTND_STAGGER, pauses of random length where warps or
// blocks hand something to each other: what they wait for is then sometimes
// early and sometimes late, and a barrier that is missing shows in results.

#include <cstdint>

namespace attnd::cuda {

// For all lanes of a warp.
__device__ inline void Stagger() {
#ifdef ATTND_STAGGER
  constexpr uint32_t kMostCycles = 4096;
  uint32_t x = static_cast<uint32_t>(clock64()) + 0x9e3779b9u * threadIdx.x +
               0x85ebca6bu * blockIdx.x;
  x = __shfl_sync(0xffffffff, x, 0);
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  // Most calls do not pause: if all did, everything would be equally late.
  if (x % 4 != 0) return;
  const int64_t until = clock64() + (x >> 8) % kMostCycles;
  while (clock64() < until) {
  }
  __syncwarp();
#endif
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_STAGGER_CUH_
