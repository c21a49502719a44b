#ifndef ATTND_KERNELS_CUDA_TEAM_PEERS_H_
#define ATTND_KERNELS_CUDA_TEAM_PEERS_H_

// Which GPUs reach each other's memory. Thread-safe; asks the driver once a
// process, and remembers a refusal as well.

namespace attnd::cuda {

// Lets every other usable GPU that can into the memory of `device`'s default
// pool. A pool's memory needs no other permission: what
// cudaDeviceEnablePeerAccess allows is not of pools.
void ShareMemory(int device);

// Whether `reader` may use the memory of `owner`'s pool: `owner` has shared it,
// and neither the GPUs nor the driver refused.
bool CanRead(int reader, int owner);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TEAM_PEERS_H_
