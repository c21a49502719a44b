#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_BACKWARD_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_BACKWARD_CUH_

// The backward kernel. Its block of threads, producers and two consumers, stays
// on its multiprocessor until there are no more blocks of columns.

#include "kernels/cuda/sm90/backward/config.h"
#include "kernels/cuda/sm90/backward/consumer.cuh"
#include "kernels/cuda/sm90/backward/dq_adder.cuh"
#include "kernels/cuda/sm90/backward/ds_sender.cuh"
#include "kernels/cuda/sm90/backward/loader.cuh"
#include "kernels/cuda/sm90/backward/shared.cuh"
#include "kernels/cuda/sm90/backward/tail_copier.cuh"
#include "kernels/cuda/sm90/backward/turn_keeper.cuh"
#include "kernels/cuda/sm90/backward/wide_consumer.cuh"
#include "kernels/cuda/sm90/backward/wide_roles.cuh"
#include "kernels/cuda/tile/ptx.cuh"

namespace attnd::cuda::sm90 {

// The producers of one thread each, in one warp. They poll barriers, because a
// wait would suspend the others, too.
template <class Config>
__device__ void RunKeepersAndSender(BackwardShared<Config>& shared) {
  const int lane = threadIdx.x % 32;
  // One chain of else-ifs: with a test after each branch, threads might wait at
  // the test for the one that is still in the branch.
  if (lane == 0) {
    if (shared.in_turns) TurnKeeper<Config>(shared).TakeTurns();
  } else if (lane == 8) {
    if (shared.in_turns) TurnKeeper<Config>(shared).EndTurns();
  } else if (lane == 16) {
    if constexpr (Config::kCluster == 2) DsSender<Config>(shared).Run();
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    BackwardKernel(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  auto& shared = *reinterpret_cast<BackwardShared<Config>*>(memory);
  if (threadIdx.x == 0) shared.Init(params.in_turns);
  // All threads, of both blocks of a cluster, see the barriers after this.
  if constexpr (Config::kCluster == 1) {
    __syncthreads();
  } else {
    ptx::ClusterArrive();
    ptx::ClusterWait();
  }
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    ptx::GiveRegisters<Config::kShape.producer_registers>();
    const int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
      BackwardLoader<Config>(shared, params).Run();
    } else if (warp == 1) {
      Describer<Config>(shared).Run();
    } else if (warp == 2) {
      ValueCopier<Config>(shared).Run();
    } else if (warp == 3) {
      if constexpr (Config::kWide) {
        RunKeepersAndSender(shared);
      } else {
        if (threadIdx.x % 32 == 0) DqAdder<Config>(shared).Run();
      }
    }
  } else {
    ptx::TakeRegisters<Config::kShape.consumer_registers>();
    if constexpr (!Config::kWide) {
      BackwardConsumer<Config>(shared, warpgroup - 1).Run();
    } else if (warpgroup == 1) {
      WideConsumer<Config, ScoresRole<Config>>(shared).Run();
    } else {
      WideConsumer<Config, GradientsRole<Config>>(shared).Run();
    }
  }
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_BACKWARD_CUH_
