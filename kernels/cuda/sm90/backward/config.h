#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_CONFIG_H_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_CONFIG_H_

// The shapes that the backward kernel comes in; README.md has what was tried.

namespace attnd::cuda::sm90 {

// How the backward kernel is cut.
struct BackwardShape {
  int dim, value_dim;     // what head_dim and value_dim are rounded up to
  int rows;               // of a tile of Q and dO
  int cols;               // of a block of K and V: 64 of each consumer
  int stages, do_stages;  // tiles of Q, and of dO, in shared memory
  bool wide;    // two consumers share the 64 columns (wide_consumer.cuh)
  int cluster;  // blocks, of neighbouring columns, that find dQ together
  int producer_registers;  // of a thread; together at most 65536 a block
  int consumer_registers;
  const char* why;  // this shape, and not another
};

// From small dims to large.
inline constexpr BackwardShape kBackwardShapes[] = {
    {64, 64, 128, 128, 2, 2, false, 1, 24, 240,
     "as 128, but small dK and dV leave registers to more rows: half as many "
     "waits"},
    {96, 96, 64, 128, 2, 2, false, 1, 72, 216, "as 128"},
    {128, 128, 64, 128, 2, 2, false, 1, 40, 232,
     "S, dP, dK and dV of 64 rows by 64 columns fill a consumer's registers"},
    {192, 128, 64, 64, 2, 2, true, 1, 40, 232, "as 256"},
    {192, 192, 64, 64, 2, 2, true, 1, 40, 232,
     "as 256, but adds of one block to dQ keep pace"},
    {256, 256, 64, 64, 2, 1, true, 2, 24, 240,
     "dK and dV of 64 columns take half of all registers; adds to dQ are what "
     "takes longest, and a pair of blocks makes half as many"},
};

// The shape for problems of these rounded dims.
constexpr BackwardShape BackwardShapeOf(int dim, int value_dim) {
  for (const BackwardShape& shape : kBackwardShapes) {
    if (shape.dim == dim && shape.value_dim == value_dim) return shape;
  }
  return {};
}

template <class T_, int kDim_, int kValueDim_>
struct BackwardConfig {
  using T = T_;
  static constexpr int kDim = kDim_, kValueDim = kValueDim_;
  static constexpr BackwardShape kShape = BackwardShapeOf(kDim, kValueDim);
  static constexpr int kRows = kShape.rows, kCols = kShape.cols;
  static constexpr int kStages = kShape.stages;
  static constexpr int kDoStages = kShape.do_stages;
  static constexpr int kCluster = kShape.cluster;
  // Columns of a cluster's blocks.
  static constexpr int kClusterCols = kCluster * kCols;
  static constexpr bool kWide = kShape.wide;
  static constexpr int kConsumers = kWide ? 2 : kCols / 64;
  // What is said of tiles of rows is kept as long as dQ is under way: where
  // consumers share columns, they add it to the sums a tile later.
  static constexpr int kTiles = kWide ? 2 * kStages : kStages;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  // Panels of 64 columns, 128 bytes of each row.
  static constexpr int kDimPanels = (kDim + 63) / 64;
  static constexpr int kValuePanels = (kValueDim + 63) / 64;
  static constexpr int kQBytes = kDimPanels * kRows * 128;
  static constexpr int kDoBytes = kValuePanels * kRows * 128;
  static constexpr int kKBytes = kDimPanels * kCols * 128;
  static constexpr int kVBytes = kValuePanels * kCols * 128;
  static constexpr int kDsBytes = kCols / 64 * kRows * 128;
  // Columns of the sums of dQ, and of those, what a consumer has of a tile.
  static constexpr int kDqDim = 64 * kDimPanels;
  // Of more rows than 64 a consumer has 64, and all columns.
  static constexpr bool kDqByRows = kRows > 64;
  static constexpr int kDqCols = kDqByRows ? kDqDim : kDqDim / kConsumers;
  static constexpr int DqRow(int consumer) {
    return kDqByRows ? 64 * consumer : 0;
  }
  static constexpr int DqColumn(int consumer) {
    return kDqByRows ? 0 : kDqCols * consumer;
  }
  // Rows of a tile whose LSE a consumer reads before it needs it.
  static constexpr int kEarlyRows = kRows > 64 ? 8 : 64;
  // Whether what memory says of a tile is asked for before there is place for
  // the tile: a tile of more rows lasts long enough.
  static constexpr bool kEarlyFlags = kRows == 64;
  // What a warp has of a tile's dQ: 16 rows.
  static constexpr int kWarpDqFloats = 16 * kDqCols;
  // What a block of a cluster needs of its neighbour's K: its part of dims, a
  // panel of each consumer.
  static constexpr int kOtherPanels = kCluster == 2 ? kDimPanels / 2 : 0;
  // Q of a tile is left when the next one is there.
  static_assert(kStages >= 2);
  static_assert(kCluster == 1 || (kWide && kOtherPanels == kConsumers));
  static_assert(kRows == 64 || (!kWide && kRows == 64 * kConsumers));
  static_assert(kWide || 64 % kDqCols == 0);
  static_assert(kDim % 16 == 0 && kValueDim % 16 == 0);
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_CONFIG_H_
