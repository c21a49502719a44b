#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_WIDE_ROLES_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_WIDE_ROLES_CUH_

// What each of the two wide consumers, which share a block's columns, does on
// its own: one computes P from S and sums up dV, the other computes dS from dP
// and sums up dK. Both have tiles transposed, [64 columns, kRows], with the
// same elements in the same threads.

#include <cstdint>

#include "kernels/cuda/sm90/backward/epilogue.cuh"
#include "kernels/cuda/sm90/backward/products.cuh"
#include "kernels/cuda/sm90/backward/scores.cuh"
#include "kernels/cuda/sm90/backward/shared.cuh"
#include "kernels/cuda/sm90/ring.cuh"

namespace attnd::cuda::sm90 {

// The consumer of (E1), (E12) and (E13).
template <class Config>
class ScoresRole {
 public:
  using T = typename Config::T;
  static constexpr int kNumber = 0;
  static constexpr int kRows = Config::kRows;
  static constexpr int kDepth = Config::kDim;        // S = K Q^T: K's columns
  static constexpr int kSumDim = Config::kValueDim;  // dV = P^T dO: its columns
  static constexpr int kStages = Config::kStages;    // slots of row_ring()
  static constexpr int kSumStages = Config::kDoStages;  // and of sum_ring()
  static constexpr bool kSubtract = false;

  __device__ explicit ScoresRole(BackwardShared<Config>& shared)
      : shared_(shared),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x % 128 / 32) {}

  __device__ void Open(const ColumnBlock& block) {
    block_ = &block;
    FindRowsThatSee(block.intervals, block.columns.first + 16 * warp_, lane_,
                    &shared_.seen_by[16 * warp_]);
  }

  __device__ const std::byte* columns() const { return shared_.k; }
  __device__ const std::byte* rows(int i) const { return shared_.q[i]; }
  __device__ auto& row_ring() const { return shared_.q_ring; }
  __device__ const std::byte* sum_rows(int i) const { return shared_.d_o[i]; }
  __device__ auto& sum_ring() const { return shared_.do_ring; }

  // S starts from 0. Q is left later, by Transform: LSE came with it and is
  // still unread when S is there.
  __device__ void Begin(uint32_t, float (&)[kRows / 2]) const {}
  __device__ void LeaveRows(uint32_t) const {}
  // (E12): turns S of tile `count` into P, hands that on to the other consumer,
  // rounds it to `p`, and leaves Q.
  __device__ void Transform(uint32_t count, float (&s)[kRows / 2],
                            uint32_t (&p)[kRows / 4]) const {
    const RingPlace<Config::kStages> place(count);
    const RowTile& tile = shared_.tiles[count % Config::kTiles];
    const auto& lse = shared_.lse[place.index()];
    float factor = block_->factor;
    if (tile.flags != 0) [[unlikely]]
      factor = RareScores<kRows>(
          *block_, tile, &shared_.seen_by[16 * warp_ + lane_ / 4], lane_, s);
    Exponentiate(lse, RowValues<8>(lse, lane_), factor, lane_, s);
    const RingPlace<1> handed(count);
    Ring<1>& ring = shared_.exchange.p_rings[warp_];
    // Wait until the other consumer's warp has read P of the tile before.
    ptx::BarrierWait(ptx::SharedAddress(ring.empty), handed.parity() ^ 1);
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      shared_.p[warp_][n][lane_] =
          make_float4(s[4 * n], s[4 * n + 1], s[4 * n + 2], s[4 * n + 3]);
    }
    WarpArrives(ring.full[0]);
    Round<T>(s, p);
    WarpArrives(shared_.q_ring.empty[place.index()]);
  }

  __device__ void Store(float (&d_v)[kSumDim / 2]) const {
    StoreDv<T>(*block_, 16 * warp_, lane_, d_v);
  }

 private:
  BackwardShared<Config>& shared_;
  const int lane_, warp_;
  const ColumnBlock* block_;
};

// The consumer of (E14), (E15) and (E18).
template <class Config>
class GradientsRole {
 public:
  using T = typename Config::T;
  static constexpr int kNumber = 1;
  static constexpr int kRows = Config::kRows;
  static constexpr int kDepth = Config::kValueDim;  // dP = V dO^T: V's columns
  static constexpr int kSumDim = Config::kDim;      // dK = dS^T Q: its columns
  static constexpr int kStages = Config::kDoStages;
  static constexpr int kSumStages = Config::kStages;
  static constexpr bool kSubtract = true;

  __device__ explicit GradientsRole(BackwardShared<Config>& shared)
      : shared_(shared),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x % 128 / 32) {}

  __device__ void Open(const ColumnBlock& block) { block_ = &block; }

  __device__ const std::byte* columns() const { return shared_.v; }
  __device__ const std::byte* rows(int i) const { return shared_.d_o[i]; }
  __device__ auto& row_ring() const { return shared_.do_ring; }
  __device__ const std::byte* sum_rows(int i) const { return shared_.q[i]; }
  __device__ auto& sum_ring() const { return shared_.q_ring; }

  // dP of tile `count` starts from delta, and becomes delta - dP. dO is left as
  // soon as that is there; the other consumer leaves it after dV.
  __device__ void Begin(uint32_t count, float (&d_p)[kRows / 2]) const {
    const RingPlace<kStages> place(count);
    SpreadOverColumns(shared_.delta[place.index()], lane_, d_p);
  }
  __device__ void LeaveRows(uint32_t count) const {
    const RingPlace<kStages> place(count);
    WarpArrives(shared_.do_ring.empty[place.index()]);
  }
  // (E15): turns delta - dP of tile `count` into dS, rounded to `d_s`, and
  // stores that to shared memory as [kRows, 64].
  __device__ void Transform(uint32_t count, float (&d_p)[kRows / 2],
                            uint32_t (&d_s)[kRows / 4]) const {
    const RingPlace<1> handed(count);
    const RingPlace<2> to(count);
    Ring<1>& p_ring = shared_.exchange.p_rings[warp_];
    Ring<2>& ds_ring = shared_.exchange.ds_ring;
    // Wait until the other consumer's warp has stored P, and all consumers have
    // read dS of two tiles before.
    ptx::BarrierWait(ptx::SharedAddress(p_ring.full), handed.parity());
    ptx::BarrierWait(ptx::SharedAddress(&ds_ring.empty[to.index()]),
                     to.parity() ^ 1);
    Multiply(d_p, d_s);
    PutDs(d_s, shared_.d_s[to.index()]);
    ptx::FenceAsyncProxy();
    WarpArrives(ds_ring.full[to.index()]);
    WarpArrives(p_ring.empty[0]);
  }

  __device__ void Store(float (&d_k)[kSumDim / 2]) const {
    StoreDk<T>(*block_, 16 * warp_, lane_, d_k);
  }

 private:
  // (E15), with P from the other consumer.
  __device__ void Multiply(const float (&d_p)[kRows / 2],
                           uint32_t (&d_s)[kRows / 4]) const {
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float4 p = shared_.p[warp_][n][lane_];
      const float* x = &d_p[4 * n];
      d_s[2 * n] = ptx::Pack<T>(p.x * -x[0], p.y * -x[1]);
      d_s[2 * n + 1] = ptx::Pack<T>(p.z * -x[2], p.w * -x[3]);
    }
  }
  // Stores the warp's 16 columns of dS, 16 rows at a time.
  __device__ void PutDs(const uint32_t (&d_s)[kRows / 4],
                        const std::byte* tile) const {
    const int matrix = lane_ / 8;
    const int row = matrix / 2 * 8 + lane_ % 8;
    const int chunk = 2 * warp_ + matrix % 2;  // 8 columns each
    const uint32_t to =
        ptx::SharedAddress(tile) + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll
    for (int n = 0; n < kRows / 16; ++n) {
      ptx::StoreMatricesTransposed(to + n * 16 * 128, d_s[4 * n],
                                   d_s[4 * n + 1], d_s[4 * n + 2],
                                   d_s[4 * n + 3]);
    }
  }

  BackwardShared<Config>& shared_;
  const int lane_, warp_;
  const ColumnBlock* block_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_WIDE_ROLES_CUH_
