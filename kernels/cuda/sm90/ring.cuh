#ifndef ATTND_KERNELS_CUDA_SM90_RING_CUH_
#define ATTND_KERNELS_CUDA_SM90_RING_CUH_

// Rings of slots, which are filled and read in turn, and how those who fill and
// those who read them wait for each other.

#include <cstdint>

#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/tile/stagger.cuh"

namespace attnd::cuda::sm90 {

// The barriers of a ring of kCount slots.
// full: producers → consumers, the slot's data is ready.
// empty: every consumer → producers, the slot may be filled again.
template <int kCount>
struct Ring {
  uint64_t full[kCount], empty[kCount];

  // For one thread: how many arrivals end a phase of `full` and of `empty`.
  __device__ void Init(int producers, int consumers) {
    for (int i = 0; i < kCount; ++i) {
      ptx::BarrierInit(ptx::SharedAddress(&full[i]), producers);
      ptx::BarrierInit(ptx::SharedAddress(&empty[i]), consumers);
    }
  }
};

// Arrives at `barrier` once for the warp, when all of its lanes have come here.
// All lanes call it.
__device__ inline void WarpArrives(uint64_t& barrier,
                                   int lane = threadIdx.x % 32) {
  Stagger();
  __syncwarp();
  if (lane == 0) ptx::BarrierArrive(ptx::SharedAddress(&barrier));
}

// Where in a ring a producer or consumer is: how many slots it has passed. A
// consumer waits for full[index()] with parity(), and a producer for
// empty[index()] with parity() ^ 1, which does not wait in the first round.
template <int kCount>
class RingPlace {
 public:
  __device__ explicit RingPlace(uint32_t count = 0) : count_(count) {}

  __device__ int index() const { return count_ % kCount; }
  __device__ uint32_t parity() const { return count_ / kCount % 2; }
  __device__ void Next() { ++count_; }
  __device__ uint32_t count() const { return count_; }

 private:
  uint32_t count_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_RING_CUH_
