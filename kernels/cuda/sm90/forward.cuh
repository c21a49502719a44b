#ifndef ATTND_KERNELS_CUDA_SM90_FORWARD_CUH_
#define ATTND_KERNELS_CUDA_SM90_FORWARD_CUH_

// The forward kernel. Its block of threads, a planner, two loaders and two or
// three consumers, stays on its multiprocessor until there are no more tiles.

#include "kernels/cuda/sm90/config.h"
#include "kernels/cuda/sm90/consumer.cuh"
#include "kernels/cuda/sm90/loader.cuh"
#include "kernels/cuda/sm90/planner.cuh"
#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/rows_loader.cuh"
#include "kernels/cuda/sm90/shared.cuh"

namespace attnd::cuda::sm90 {

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    ForwardKernel(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  auto& shared = *reinterpret_cast<Shared<Config>*>(memory);
  if (threadIdx.x == 0) {
    // Arrivals that end a phase: shared.cuh says whose.
    constexpr int kWarps = 4 * Config::kConsumers;
    for (auto& ring : shared.q_rings) ring.Init(1, 4);
    shared.k_ring.Init(1, kWarps);
    shared.v_ring.Init(1, kWarps);
    shared.slot_ring.Init(1, kWarps + 2);
    for (int i = 0; i < Config::kSlots; ++i) {
      ptx::BarrierInit(ptx::SharedAddress(&shared.known[i]), 1);
      ptx::BarrierInit(ptx::SharedAddress(&shared.claims[i]), 1);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();  // all see the barriers
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    ptx::GiveRegisters<Config::kShape.producer_registers>();
    const int warp = threadIdx.x / 32;
    if (warp == 0) {
      Loader<Config>(shared).Run();
    } else if (warp == 1) {
      Planner<Config>(params, shared).Run();
    } else if (warp == 2) {
      RowsLoader<Config>(shared).Run();
    }
  } else {
    ptx::TakeRegisters<Config::kShape.consumer_registers>();
    Consumer<Config>(shared, warpgroup - 1).Run();
  }
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_FORWARD_CUH_
