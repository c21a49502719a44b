#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_BLOCK_WALK_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_BLOCK_WALK_CUH_

#include "kernels/cuda/sm90/backward/shared.cuh"

namespace attnd::cuda::sm90 {

// Walks the blocks of columns that this block of threads has, one after the
// other, as the loader opens them.
template <class Config>
class BlockWalk {
 public:
  __device__ explicit BlockWalk(BackwardShared<Config>& shared)
      : shared_(shared) {}

  // The next block, or null. kPoll: threads of the warp walk apart.
  template <bool kPoll = false>
  __device__ const ColumnBlock* Next() const {
    const int i = place_.index();
    const uint32_t full = ptx::SharedAddress(&shared_.slot_ring.full[i]);
    if constexpr (kPoll) {
      ptx::BarrierPoll(full, place_.parity());
    } else {
      ptx::BarrierWait(full, place_.parity());
    }
    return shared_.slots[i].over ? nullptr : &shared_.slots[i].block;
  }

  // Of those that say of the block's columns that they are there, or left.
  __device__ uint32_t parity() const { return place_.count() % 2; }

  // This thread has left the block.
  __device__ void Leave() {
    ptx::BarrierArrive(
        ptx::SharedAddress(&shared_.slot_ring.empty[place_.index()]));
    place_.Next();
  }
  // This warp has.
  __device__ void LeaveTogether() {
    const int i = place_.index();
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      ptx::BarrierArrive(ptx::SharedAddress(&shared_.slot_ring.empty[i]));
    place_.Next();
  }

 private:
  BackwardShared<Config>& shared_;
  RingPlace<2> place_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_BLOCK_WALK_CUH_
