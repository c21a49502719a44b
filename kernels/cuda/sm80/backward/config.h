#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_CONFIG_H_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_CONFIG_H_

// The shapes of the backward kernel for 16-bit inputs. ../README.md says how a
// block of threads works with them.

#include <cstdint>

#include "kernels/cuda/launch/kernel.h"

namespace attnd::cuda::sm80 {

// Which GPUs a shape is for, by the shared memory that they give a block of
// threads: kSmall fits all GPUs, kLarge those made for servers.
enum class Memory : uint8_t { kSmall, kLarge };
constexpr int MostSharedBytes(Memory memory) {
  return (memory == Memory::kSmall ? 99 : 163) << 10;
}

struct BackwardShape {
  int dim;  // what head_dim and value_dim are rounded up to
  Memory memory;
  int rows, cols;  // size of a tile of scores
  int warps;
  // How the warps are arranged for each product: S, dP, dK and dV are cut into
  // col_warps blocks of columns, dQ into dq_row_warps blocks of rows.
  int col_warps;
  int dq_row_warps;
  int q_buffers, d_o_buffers;  // with two, the next rows come a step early
  int blocks_per_sm;  // blocks for which registers and shared memory suffice
  const char* why;    // why it is this shape and not another
};

// dK and dV take 8 cols x dim bytes of registers, out of a multiprocessor's 256
// KiB. The more columns, the less often do sums of dQ and rows of Q and dO go
// through memory.
inline constexpr BackwardShape kBackwardShapes[] = {
    {64, Memory::kLarge, 64, 128, 4, 4, 2, 2, 2, 2,
     "a warp has all rows of its 32 columns: P and dS go from register to "
     "register, and one block's barriers leave the other alone"},
    {64, Memory::kSmall, 64, 128, 4, 4, 2, 2, 1, 2,
     "the same; two blocks fit an A100's memory with one buffer for dO"},
    {96, Memory::kLarge, 64, 128, 8, 4, 4, 2, 2, 1,
     "as 128, whose memory it takes: rows are padded to lines of 128 bytes"},
    {96, Memory::kSmall, 64, 64, 4, 2, 2, 2, 1, 1, "as 128"},
    {128, Memory::kLarge, 64, 128, 8, 4, 2, 2, 2, 1,
     "dK and dV take half of the registers, S and dP a quarter"},
    {128, Memory::kSmall, 64, 64, 4, 2, 2, 2, 1, 1,
     "a second buffer for dO would exceed 99 KiB"},
    {192, Memory::kLarge, 64, 64, 8, 2, 2, 2, 2, 1,
     "more columns do not fit the registers"},
    {192, Memory::kSmall, 64, 32, 4, 1, 2, 1, 1, 1,
     "more columns do not fit 99 KiB"},
    {256, Memory::kLarge, 64, 64, 8, 2, 2, 1, 1, 1,
     "second buffers do not fit an A100's 163 KiB"},
    {256, Memory::kSmall, 64, 16, 4, 1, 2, 1, 1, 1,
     "32 columns would exceed 99 KiB by 5"},
};

constexpr BackwardShape BackwardShapeOf(int dim, Memory memory) {
  for (const BackwardShape& shape : kBackwardShapes) {
    if (shape.dim == dim && shape.memory == memory) return shape;
  }
  return {};
}

template <class T_, int kDim_, Memory kMemory>
struct BackwardConfig {
  using T = T_;
  static constexpr int kDim = kDim_;
  static constexpr BackwardShape kShape = BackwardShapeOf(kDim, kMemory);
  static constexpr int kRows = kShape.rows, kCols = kShape.cols;
  static constexpr int kWarps = kShape.warps, kThreads = 32 * kWarps;
  static constexpr int kQBuffers = kShape.q_buffers;
  static constexpr int kDOBuffers = kShape.d_o_buffers;
  static constexpr int kBlocksPerSm = kShape.blocks_per_sm;

  // A warp has kWarpCols columns of S, dP, dK and dV. kParts warps share these:
  // each has a part of the rows of S and dP, and of the dims of dK and dV.
  static constexpr int kWarpCols = kCols / kShape.col_warps;
  static constexpr int kParts = kWarps / kShape.col_warps;
  static constexpr int kWarpRows = kRows / kParts, kWarpDims = kDim / kParts;
  // How many of its rows of S and dP a warp has in registers at a time.
  static constexpr int kPassRows = kWarpRows < 32 ? kWarpRows : 32;
  // Whether a warp's own P and dS are all that its dV and dK need, so that P
  // need not go through shared memory.
  static constexpr bool kInRegisters = kParts == 1;

  static constexpr DqLayout kDqLayout = DqLayout::kLanes;
  // A warp's part of dQ is kDqRows rows by kDqDims dims.
  static constexpr int kDqRows = kRows / kShape.dq_row_warps;
  static constexpr int kDqDims = kDim * kShape.dq_row_warps / kWarps;
  static_assert(kWarpCols % 16 == 0 && kPassRows % 16 == 0 &&
                kWarpRows % kPassRows == 0 && kWarpDims % 16 == 0 &&
                kDqRows % 16 == 0 && kDqDims % 16 == 0);
};

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_CONFIG_H_
