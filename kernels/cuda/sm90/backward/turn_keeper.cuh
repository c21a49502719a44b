#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_TURN_KEEPER_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_TURN_KEEPER_CUH_

// Those who take turns at dQ on behalf of wide consumers, where results must be
// the same each time (turns.cuh). So consumers never wait until what they have
// added is in memory, and a barrier in shared memory tells them that it is
// their turn.

#include <cstdint>

#include "kernels/cuda/sm90/backward/block_turns.cuh"
#include "kernels/cuda/sm90/backward/block_walk.cuh"
#include "kernels/cuda/sm90/backward/row_walk.cuh"
#include "kernels/cuda/tile/turns.cuh"

namespace attnd::cuda::sm90 {

// For two threads, which go through the same tiles: one takes the block's
// turns, the other ends them.
template <class Config>
class TurnKeeper {
 public:
  static constexpr int kRows = Config::kRows;

  __device__ explicit TurnKeeper(BackwardShared<Config>& shared)
      : shared_(shared), turns_(shared.turns) {}

  // Tells consumers when the turn at a tile is the block's.
  __device__ void TakeTurns() {
    ForEachTile([this](uint32_t* counter, uint32_t turn) {
      const int i = place_.index();
      Wait(turns_.over[i], place_.parity() ^ 1);
      WaitForTurn(counter, turn);
      Arrive(turns_.taken[i]);
    });
  }

  // Ends the turn at a tile when all consumers have added to it.
  __device__ void EndTurns() {
    ForEachTile([this](uint32_t* counter, uint32_t turn) {
      const int i = place_.index();
      Wait(turns_.added[i], place_.parity());
      EndTurn(counter, turn);
      Arrive(turns_.over[i]);
    });
  }

 private:
  // Calls act(counter, turn) for each tile of rows of all blocks of columns,
  // with the tile's counter and the number of the block's turn.
  template <class Act>
  __device__ void ForEachTile(const Act& act) {
    BlockWalk<Config> blocks(shared_);
    while (const ColumnBlock* block = blocks.template Next<true>()) {
#pragma unroll 1
      for (RowWalk<kRows> walk(*block); !walk.done(*block); walk.Next(*block)) {
        act(TurnCounter<Config>(*block, walk),
            TurnNumber<Config>(*block, walk));
        place_.Next();
      }
      blocks.Leave();
    }
  }
  __device__ static void Wait(uint64_t& barrier, uint32_t parity) {
    ptx::BarrierPoll(ptx::SharedAddress(&barrier), parity);
  }
  __device__ static void Arrive(uint64_t& barrier) {
    ptx::BarrierArrive(ptx::SharedAddress(&barrier));
  }

  BackwardShared<Config>& shared_;
  Turns<Config::kStages>& turns_;
  RingPlace<Config::kStages> place_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_TURN_KEEPER_CUH_
