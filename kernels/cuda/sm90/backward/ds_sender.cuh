#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_DS_SENDER_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_DS_SENDER_CUH_

// The sender of dS: one thread, a producer, that has the copy engine copy dS to
// the cluster's other block.

#include <cstdint>

#include "kernels/cuda/sm90/backward/block_walk.cuh"

namespace attnd::cuda::sm90 {

template <class Config>
class DsSender {
 public:
  __device__ explicit DsSender(BackwardShared<Config>& shared)
      : shared_(shared), other_(ptx::ClusterRank() ^ 1) {}

  __device__ void Run() {
    BlockWalk<Config> blocks(shared_);
    while (const ColumnBlock* block = blocks.template Next<true>()) {
      Send(block->tiles());
      blocks.Leave();
    }
  }

 private:
  __device__ void Send(int tiles) {
    auto& exchange = shared_.exchange;
    for (int left = tiles; left > 0; --left) {
      const int i = place_.index();
      // Wait until dS is there. Whoever wrote it has waited until all consumers
      // of the cluster had read dS of two tiles before, this block's and the
      // other's. So nobody reads any more where this one goes, and what the
      // other block sends next counts for the phase that is announced here.
      ptx::BarrierPoll(ptx::SharedAddress(&exchange.ds_ring.full[i]),
                       place_.parity());
      const uint32_t full = ptx::SharedAddress(&exchange.other_ds_full[i]);
      ptx::BarrierArriveExpect(full, Config::kDsBytes);
      ptx::BulkSend(
          ptx::ClusterAddress(ptx::SharedAddress(shared_.other_ds[i]), other_),
          ptx::SharedAddress(shared_.d_s[i]), Config::kDsBytes,
          ptx::ClusterAddress(full, other_));
      place_.Next();
    }
  }

  BackwardShared<Config>& shared_;
  const uint32_t other_;  // rank of the other block
  RingPlace<2> place_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_DS_SENDER_CUH_
