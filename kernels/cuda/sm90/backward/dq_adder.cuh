#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_DQ_ADDER_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_DQ_ADDER_CUH_

// How narrow consumers' dQ comes to its sums: through shared memory, from where
// the copy engine adds it, so that consumers do not wait for memory.

#include <cstdint>

#include "kernels/cuda/sm90/backward/block_turns.cuh"
#include "kernels/cuda/sm90/backward/block_walk.cuh"
#include "kernels/cuda/sm90/backward/row_walk.cuh"
#include "kernels/cuda/tile/dq_sum.cuh"
#include "kernels/cuda/tile/turns.cuh"

namespace attnd::cuda::sm90 {

// Stores a warp's part of a tile's dQ, [16, 2 kCount], to shared memory at
// `to`, in the order of the sums (DqLayout::kQuads).
template <int kCount>
__device__ void StageDq(const float (&d_q)[kCount], int lane, float* to) {
  auto* quads = reinterpret_cast<float4*>(to) + lane;
#pragma unroll
  for (int n = 0; n < kCount / 8; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = 8 * n + 2 * r;
      quads[64 * n + 32 * r] =
          make_float4(d_q[at], d_q[at + 1], d_q[at + 4], d_q[at + 5]);
    }
  }
}

// The adder of dQ: one thread, a producer, that has the copy engine add to the
// sums what consumers have stored; in turns (turns.cuh) where sums must be the
// same each time.
template <class Config>
class DqAdder {
 public:
  static constexpr int kRows = Config::kRows;

  __device__ explicit DqAdder(BackwardShared<Config>& shared)
      : shared_(shared) {}

  __device__ void Run() {
    BlockWalk<Config> blocks(shared_);
    while (const ColumnBlock* block = blocks.Next()) {
      RowWalk<kRows> walk(*block);
      if (shared_.in_turns) {
        AddInTurns(*block, walk);
      } else {
#pragma unroll 1
        for (; !walk.done(*block); walk.Next(*block)) {
          Add(*block, walk);
          Leave();
        }
      }
      blocks.Leave();
    }
  }

 private:
  __device__ void AddInTurns(const ColumnBlock& block, RowWalk<kRows>& walk) {
    bool begun = false;  // whether the tile's turn is known to have begun
#pragma unroll 1
    while (!walk.done(block)) {
      if (!begun)
        WaitForTurn(TurnCounter<Config>(block, walk),
                    TurnNumber<Config>(block, walk));
      ptx::FenceAsyncProxyGlobal();
      Add(block, walk);
      RowWalk<kRows> next = walk;
      next.Next(block);
      // A look at the counter takes long: this one is taken while the sums are
      // on their way.
      begun = !next.done(block) &&
              cuda::ptx::LoadAcquire(TurnCounter<Config>(block, next)) ==
                  TurnNumber<Config>(block, next);
      Leave();
      ptx::WaitForStores<false>();
      EndTurn(TurnCounter<Config>(block, walk),
              TurnNumber<Config>(block, walk));
      walk = next;
    }
  }

  // Has the copy engine begin with a tile, once consumers have stored it.
  __device__ void Add(const ColumnBlock& block,
                      const RowWalk<kRows>& walk) const {
#pragma unroll 1
    for (int c = 0; c < Config::kConsumers; ++c) {
      ptx::BarrierWait(ptx::SharedAddress(ring(c).full), place_.parity());
      AddPart(block, walk, c);
    }
  }
  // Waits until the copy engine has read the tile, and tells consumers.
  __device__ void Leave() {
    ptx::WaitForStores<true>();
#pragma unroll 1
    for (int c = 0; c < Config::kConsumers; ++c) {
      ptx::BarrierArrive(ptx::SharedAddress(ring(c).empty));
    }
    place_.Next();
  }
  __device__ Ring<1>& ring(int c) const { return shared_.exchange.dq_rings[c]; }
  // Has the copy engine begin with consumer c's part.
  __device__ void AddPart(const ColumnBlock& block, const RowWalk<kRows>& walk,
                          int c) const {
    float* sums =
        block.sums + int64_t{walk.padded_row(block)} * Config::kDqDim +
        DqBlock(Config::DqRow(c), Config::DqColumn(c), Config::kDqDim);
#pragma unroll 1
    for (int warp = 0; warp < 4; ++warp) {
      ptx::BulkAdd(sums, ptx::SharedAddress(shared_.d_q[c][warp]),
                   Config::kWarpDqFloats * sizeof(float));
      sums += 16 * Config::kDqDim;
    }
    ptx::CommitStores();
  }

  BackwardShared<Config>& shared_;
  RingPlace<1> place_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_DQ_ADDER_CUH_
