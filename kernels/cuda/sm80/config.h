#ifndef ATTND_KERNELS_CUDA_SM80_CONFIG_H_
#define ATTND_KERNELS_CUDA_SM80_CONFIG_H_

// Which kernel runs what, and in which shape. A choice depends on a sequence's
// own shape and dtype alone, so that its result has the same bits in any batch.

#include <cstdint>

#include "kernels/cuda/launch/kernel.h"

namespace attnd::cuda::sm80 {

// The columns of a sequence that is decoded are cut into parts, each the work
// of another block of threads; partials.cuh merges their results. A part has
// kPartColumns columns, or more where there would be more than kMostParts
// parts.
inline constexpr int64_t kPartColumns = 4096;
inline constexpr int64_t kMostParts = 64;

// Columns of each part but the last of a sequence of kv_len columns: a multiple
// of 64, so that parts consist of whole tiles.
constexpr int64_t PartColumns(int64_t kv_len) {
  if (kv_len <= kPartColumns * kMostParts) return kPartColumns;
  constexpr int64_t kTiles = 64;
  const int64_t least = (kv_len + kMostParts - 1) / kMostParts;
  return (least + kTiles - 1) / kTiles * kTiles;
}
// How many parts a sequence of kv_len columns has, at least 1.
constexpr int64_t Parts(int64_t kv_len) {
  if (kv_len <= kPartColumns) return 1;
  // Nearly every sequence takes this branch, whose divisor is a constant: a GPU
  // divides 64-bit integers slowly.
  if (kv_len <= kPartColumns * kMostParts) {
    return (kv_len + kPartColumns - 1) / kPartColumns;
  }
  const int64_t part = PartColumns(kv_len);
  return (kv_len + part - 1) / part;
}
// No sequence of at most kv_len columns has more parts than this.
constexpr int64_t MostParts(int64_t kv_len) {
  const int64_t parts = (kv_len + kPartColumns - 1) / kPartColumns;
  return parts < 1 ? 1 : parts > kMostParts ? kMostParts : parts;
}

// Rows that a block of threads decodes: one A operand of mma. They are queries
// of all q heads that share a K/V head: row i * group + g is query i of the
// group's head g.
inline constexpr int kDecodeTile = 16;
// How many rows a tile has, at most, where sequences have up to q_len queries.
constexpr int64_t TileRows(int64_t q_len, int64_t group) {
  const int64_t rows = (q_len < kDecodeRows ? q_len : kDecodeRows) * group;
  return rows < kDecodeTile ? rows : kDecodeTile;
}

// head_dim and value_dim are both rounded up to one of these.
constexpr int RoundedDim(int64_t head_dim, int64_t value_dim) {
  const int64_t dim = head_dim > value_dim ? head_dim : value_dim;
  return dim <= 64    ? 64
         : dim <= 96  ? 96
         : dim <= 128 ? 128
         : dim <= 192 ? 192
                      : 256;
}

// The shape of a prefill kernel. Every kernel takes at most 99 KiB of shared
// memory, what the smallest GPUs give a block.
struct PrefillShape {
  int rows, cols;     // size of a tile of scores
  int warps;          // each has rows / warps of the rows
  int blocks_per_sm;  // blocks for which __launch_bounds__ leaves registers
};
constexpr PrefillShape ShapeOf(int dim) {
  switch (dim) {
    case 64:
      return {128, 128, 4, 2};
    case 96:
    case 128:
      return {128, 64, 4, 2};
    default:
      return {64, 64, 4, 2};
  }
}

template <class T_, int kDim_>
struct PrefillConfig {
  using T = T_;
  static constexpr int kDim = kDim_;
  static constexpr PrefillShape kShape = ShapeOf(kDim);
  static constexpr int kRows = kShape.rows, kCols = kShape.cols;
  static constexpr int kWarps = kShape.warps, kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = kShape.blocks_per_sm;
};

// The shape of a decode kernel. Each warp streams tiles of columns of its own.
struct DecodeShape {
  int cols;  // columns of a tile
  int warps;
  int stages;         // tiles that a warp's ring holds
  int blocks_per_sm;  // blocks for which __launch_bounds__ leaves registers
};
constexpr DecodeShape DecodeShapeOf(int dim) {
  switch (dim) {
    case 64:
      return {32, 4, 3, 2};
    case 96:
    case 128:
      return {16, 4, 3, 2};
    case 192:
      return {16, 2, 4, 2};
    default:
      return {16, 2, 3, 2};
  }
}

template <class T_, int kDim_>
struct DecodeConfig {
  using T = T_;
  static constexpr int kDim = kDim_, kRows = kDecodeTile;
  static constexpr DecodeShape kShape = DecodeShapeOf(kDim);
  static constexpr int kCols = kShape.cols;
  static constexpr int kWarps = kShape.warps, kThreads = 32 * kWarps;
  static constexpr int kStages = kShape.stages;
  static constexpr int kBlocksPerSm = kShape.blocks_per_sm;
};

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_CONFIG_H_
