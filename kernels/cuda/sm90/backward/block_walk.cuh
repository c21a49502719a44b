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

  // Waits for the next block of columns; null if there is none any more. kPoll
  // is for single threads, which must not suspend the others of their warp.
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

  // The parity that ends with this block of the barriers with one phase a
  // block: k_full, v_full, other_k_full and columns_empty.
  __device__ uint32_t parity() const { return place_.count() % 2; }

  // Leaves the block. For a single thread, which counts by itself.
  __device__ void Leave() {
    ptx::BarrierArrive(
        ptx::SharedAddress(&shared_.slot_ring.empty[place_.index()]));
    place_.Next();
  }
  // The same for a warp, all lanes of which call it and which counts once.
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
