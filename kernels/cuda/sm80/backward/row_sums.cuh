#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_ROW_SUMS_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_ROW_SUMS_CUH_

// What a block of columns adds to the dQ of rows that visit it: f32 sums in
// memory, to which all blocks of columns add.

#include <cstdint>

#include "kernels/cuda/sm80/backward/column_block.cuh"
#include "kernels/cuda/sm80/backward/operand.cuh"
#include "kernels/cuda/sm80/backward/shared.cuh"
#include "kernels/cuda/tile/dq_sum.cuh"
#include "kernels/cuda/tile/ptx.cuh"

namespace attnd::cuda::sm80 {

// A warp's part of it: kDqRows rows by kDqDims dims of a tile of rows.
template <class Config>
class RowSums {
 public:
  static constexpr int kDim = Config::kDim;
  static constexpr int kTiles = Config::kDqRows / 16;
  static constexpr int kN = Config::kDqDims / 8;
  // What is added comes in so many parts, each 16 x 8 elements, four a lane.
  static constexpr int kParts = kTiles * kN;

  __device__ RowSums(int warp, int lane)
      : row_(warp / kAcross * Config::kDqRows),
        dim_(warp % kAcross * Config::kDqDims),
        lane_(lane) {}

  // Where the sum of this lane's first element is; null if dQ is not wanted.
  __device__ float* Of(const RowScratch& scratch, const Visit& visit) const {
    if (scratch.dq == nullptr) return nullptr;
    return scratch.dq + scratch.template RowOf<Config::kRows>(visit) * kDim +
           DqPlace(DqLayout::kLanes, row_ + lane_ / 4, dim_ + 2 * (lane_ % 4),
                   kDim);
  }

  // The product of (E17), without the scale, over all columns of the block.
  // `memory` is where the block's tiles begin; dS and K are there.
  __device__ void Multiply(uint32_t memory) {
    using Memory = BackwardMemory<Config>;
    Clear(dq_);
    AddProduct<typename Config::T, Config::kCols>(
        OperandA<typename Memory::Scores, Lines::kAcrossSum>(
            memory + Memory::kDS, row_, 0, lane_),
        OperandB<typename Memory::Rows, Lines::kAcrossSum>(memory + Memory::kK,
                                                           dim_, 0, lane_),
        dq_);
  }

  __device__ void MultiplyBy(float factor) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (float& x : dq_[part / kN][part % kN]) x *= factor;
    }
  }

  // Adds a part to the sums, where `sums` is what Of gave.
  __device__ void Add(int part, float* sums) const {
    const int t = part / kN, n = part % kN;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // The layout is DqLayout::kLanes, in which a lane's elements of a block
      // of 16 x 16 lie 32 apart (DqPlace).
      const int word = i / 2 * 4 + n % 2 * 2 + i % 2;
      ptx::AtomicAdd(sums + 16 * t * kDim + n / 2 * 256 + word * 32,
                     dq_[t][n][i]);
    }
  }

 private:
  static constexpr int kAcross = kDim / Config::kDqDims;

  const int row_, dim_, lane_;
  float dq_[kTiles][kN][4];
};

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_ROW_SUMS_CUH_
