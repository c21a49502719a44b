#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_CONSUMER_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_CONSUMER_CUH_

// A narrow consumer: a warpgroup that has 64 columns of the block, with their
// dK and dV in registers. It works on transposed tiles, S^T = K Q^T and
// dP^T = V dO^T, so that P^T is in registers just as dV = P^T dO wants it. dS
// goes to shared memory, as dQ of a tile takes dS of all consumers; so does dQ,
// from where it is added to the sums (dq_adder.cuh). Products run while other
// units work on the results of those before:
//
//   tensor cores   S dP (i) │ dV (i) │ dQ dK (i)   S dP (i+1) │ ...
//   the others       P (i)  │ dS (i) │ put dQ (i)    P (i+1)  │ ...

#include <cstdint>

#include "kernels/cuda/sm90/backward/block_walk.cuh"
#include "kernels/cuda/sm90/backward/dq_adder.cuh"
#include "kernels/cuda/sm90/backward/epilogue.cuh"
#include "kernels/cuda/sm90/backward/products.cuh"
#include "kernels/cuda/sm90/backward/scores.cuh"
#include "kernels/cuda/sm90/backward/shared.cuh"
#include "kernels/cuda/sm90/ring.cuh"
#include "kernels/cuda/sm90/uniform.cuh"
#include "kernels/cuda/tile/stagger.cuh"

namespace attnd::cuda::sm90 {

template <class Config>
class BackwardConsumer {
 public:
  using T = typename Config::T;
  static constexpr int kRows = Config::kRows, kCols = Config::kCols;

  // `number` is which of the consumers this is, from 0 on.
  __device__ BackwardConsumer(BackwardShared<Config>& shared, int number)
      : shared_(shared),
        number_(Uniform(number)),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x % 128 / 32),
        column_(64 * number_ + 16 * warp_) {}

  __device__ void Run() {
    BlockWalk<Config> blocks(shared_);
    while (const ColumnBlock* block = blocks.Next()) {
      FindRowsThatSee(block->intervals, block->columns.first + column_, lane_,
                      &shared_.seen_by[column_]);
      DK d_k;
      DV d_v;
      Clear(d_k);
      Clear(d_v);
      WaitFor(shared_.k_full, blocks.parity());
      WaitFor(shared_.v_full, blocks.parity());
      Loop(*block, d_k, d_v);
      WarpArrives(shared_.columns_empty, lane_);
      StoreColumns<Config>(*block, column_, lane_, d_k, d_v);
      blocks.LeaveTogether();
    }
  }

 private:
  using S = float[kRows / 2];               // S^T, P^T, dP^T: [64, kRows]
  using A = uint32_t[kRows / 4];            // P^T, rounded
  using DK = float[Config::kDim / 2];       // [64, kDim]
  using DV = float[Config::kValueDim / 2];  // [64, kValueDim]
  using DQ = float[Config::kDqCols / 2];    // [64, kDqCols]
  using Stages = RingPlace<Config::kStages>;

  template <int kCount>
  __device__ static void Clear(float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = 0.0f;
  }

  __device__ void Loop(const ColumnBlock& block, DK& d_k, DV& d_v) {
#pragma unroll 1
    for (int left = Uniform(block.tiles()); left > 0; --left)
      Step(block, d_k, d_v);
    ptx::WgmmaWait<0>();
    ptx::Pin(d_k);
  }

  // Works on a tile of rows. Its dK is still under way afterwards.
  __device__ void Step(const ColumnBlock& block, DK& d_k, DV& d_v) {
    // These belong to this tile alone, so that they may share registers.
    S s, d_p;
    A p;
    DQ d_q;
    const int i = place_.index();
    WaitForQ(place_);
    StartS(place_, s);
    ptx::WgmmaWait<1>();  // for dK of the tile before
    ptx::Pin(d_k);
    LeaveLastQ();
    // What is needed when products are there is read before dP is started, so
    // that nobody waits for it then.
    const RowValues<Config::kEarlyRows> early_lse(shared_.lse[i], lane_);
    const uint32_t flags = shared_.tiles[i].flags;
    float factor = block.factor;
    StartDp(d_p);
    ptx::WgmmaWait<1>();  // for S
    ptx::Pin(s);
    if (flags != 0) [[unlikely]]
      factor =
          RareScores<kRows>(block, shared_.tiles[i],
                            &shared_.seen_by[column_ + lane_ / 4], lane_, s);
    Exponentiate(shared_.lse[i], early_lse, factor, lane_, s);
    Round<T>(s, p);
    StartAddToColumns<T, kRows, Config::kValueDim>(
        p, ptx::SharedAddress(shared_.d_o[i]), d_v);
    ptx::WgmmaWait<1>();  // for dP
    ptx::Pin(d_p);
    std::byte* d_s = shared_.d_s[place_.count() & 1];
    PutDs(s, d_p, d_s);
    StartDq(d_s, d_q);
    StartDk(d_s, d_k);
    ptx::WgmmaWait<1>();  // for dV and dQ
    ptx::Pin(d_q);
    ptx::Pin(d_v);
    ptx::Pin(p);
    Finish(d_q);
  }

  __device__ void WaitForQ(const Stages& place) const {
    WaitFor(shared_.q_ring.full[place.index()], place.parity());
  }
  // (E1) before the scale, of the tile at `place`.
  __device__ void StartS(const Stages& place, S& s) const {
    StartRowsByRows<T, Config::kDim, kCols, kRows>(
        Rows(shared_.k), ptx::SharedAddress(shared_.q[place.index()]), s);
  }
  // (E14) of the tile at hand, once dO is there. Its accumulators begin with
  // delta, and become delta - dP.
  __device__ void StartDp(S& d_p) const {
    const int i = place_.index();
    WaitFor(shared_.do_ring.full[i], place_.parity());
    SpreadOverColumns(shared_.delta[i], lane_, d_p);
    StartRowsByRows<T, Config::kValueDim, kCols, kRows, /*kSubtract=*/true>(
        Rows(shared_.v), ptx::SharedAddress(shared_.d_o[i]), d_p);
  }
  // (E18) of the tile at hand, before the scale.
  __device__ void StartDk(const std::byte* d_s, DK& d_k) const {
    StartAddColumnsByColumns<T, kRows, Config::kDim>(
        Rows<kRows>(d_s), ptx::SharedAddress(shared_.q[place_.index()]), d_k);
  }
  // Lets go of Q of the tile before, whose dK is there.
  __device__ void LeaveLastQ() const {
    if (place_.count() == 0) return;
    WarpArrives(shared_.q_ring.empty[Stages(place_.count() - 1).index()],
                lane_);
  }
  // Lets go of dO of the tile at hand, hands on its dQ, and goes on to the
  // next.
  __device__ void Finish(const DQ& d_q) {
    WarpArrives(shared_.do_ring.empty[place_.index()], lane_);
    const RingPlace<1> place(place_.count());
    Ring<1>& ring = shared_.exchange.dq_rings[number_];
    // Wait until the copy engine has read dQ of the tile before.
    WaitFor(ring.empty[0], place.parity() ^ 1);
    StageDq(d_q, lane_, shared_.d_q[number_][warp_]);
    ptx::FenceAsyncProxy();
    WarpArrives(ring.full[0], lane_);
    place_.Next();
  }

  __device__ static void WaitFor(uint64_t& barrier, uint32_t parity) {
    ptx::BarrierWait(ptx::SharedAddress(&barrier), parity);
  }
  // Where this consumer's part of a tile is that has kEach rows of 128 bytes
  // for each consumer: 64 rows of a tile of K or V, or a panel of dS.
  template <int kEach = 64>
  __device__ uint32_t Rows(const std::byte* tile) const {
    return ptx::SharedAddress(tile) + number_ * kEach * 128;
  }

  // (E15): stores dS, from P and delta - dP, rounded, to `tile`, where all
  // consumers read it, and waits until all have stored theirs. It goes 16 rows
  // at a time, each of which frees registers. The buffer is free: after the
  // products that have read it last, all consumers have come to this barrier
  // once.
  __device__ void PutDs(const S& p, const S& d_p, std::byte* tile) const {
    const int matrix = lane_ / 8;
    const int row = matrix / 2 * 8 + lane_ % 8;
    const int chunk = 2 * warp_ + matrix % 2;  // 8 columns each
    const uint32_t to =
        Rows<kRows>(tile) + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll
    for (int n = 0; n < kRows / 16; ++n) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * n + 2 * i;  // 8 rows on: i >= 2
        words[i] = ptx::Pack<T>(p[at] * -d_p[at], p[at + 1] * -d_p[at + 1]);
      }
      ptx::StoreMatricesTransposed(to + n * 16 * 128, words[0], words[1],
                                   words[2], words[3]);
    }
    ptx::FenceAsyncProxy();
    Stagger();
    // All consumers arrive and wait.
    ptx::NamedBarrierSync<128 * Config::kConsumers>(1);
  }

  // (E17) of the tile, before the scale: the part that this consumer has.
  __device__ void StartDq(const std::byte* d_s, DQ& d_q) const {
    const uint32_t row = Config::DqRow(number_),
                   column = Config::DqColumn(number_);
    StartRowsByColumns<T, kCols, kRows, Config::kDqCols>(
        ptx::SharedAddress(d_s) + row * 128,
        ptx::SharedAddress(shared_.k) + column / 64 * kCols * 128 +
            column % 64 * 2,
        d_q);
  }

  BackwardShared<Config>& shared_;
  const int number_, lane_, warp_;
  const int column_;  // the warp's first column of the block
  Stages place_;      // the tile of rows at hand
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_CONSUMER_CUH_
