#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_CONFIG_H_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_CONFIG_H_

// The shapes that the backward kernel comes in; README.md has what was tried.

namespace attnd::cuda::sm90 {

// How the backward kernel is cut.
struct BackwardShape {
  int dim, value_dim;     // what head_dim and value_dim are rounded up to
  int rows;               // rows of a tile of Q and dO
  int cols;               // columns of a block of K and V: 64 for each consumer
  int stages, do_stages;  // slots of Q's ring, and of dO's
  bool wide;              // both consumers share 64 columns (wide_consumer.cuh)
  int cluster;  // blocks, with neighbouring columns, that find dQ together
  int producer_registers;  // per thread; a block has at most 65536 in all
  int consumer_registers;
  const char* why;  // why this shape, and not another
};

// From small dims to large, as FindBackward takes the first that fits.
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

// What a kernel is compiled for: elements of type T, f16 or bf16, and dims.
template <class T_, int kDim_, int kValueDim_>
struct BackwardConfig {
  using T = T_;
  static constexpr int kDim = kDim_, kValueDim = kValueDim_;
  static constexpr BackwardShape kShape = BackwardShapeOf(kDim, kValueDim);
  static constexpr int kRows = kShape.rows, kCols = kShape.cols;
  static constexpr int kStages = kShape.stages;
  static constexpr int kDoStages = kShape.do_stages;
  static constexpr int kCluster = kShape.cluster;
  // Columns of a cluster's blocks together.
  static constexpr int kClusterCols = kCluster * kCols;
  static constexpr bool kWide = kShape.wide;
  static constexpr int kConsumers = kWide ? 2 : kCols / 64;
  // How many RowTiles are kept: until dQ is added to the sums, which wide
  // consumers do a tile later than the rest of the tile's work.
  static constexpr int kTiles = kWide ? 2 * kStages : kStages;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  // A tile lies in shared memory as panels of 64 columns: T [panels][rows][64],
  // a row of 128 bytes, in wgmma's swizzle of 128 bytes.
  static constexpr int kDimPanels = (kDim + 63) / 64;
  static constexpr int kValuePanels = (kValueDim + 63) / 64;
  static constexpr int kQBytes = kDimPanels * kRows * 128;
  static constexpr int kDoBytes = kValuePanels * kRows * 128;
  static constexpr int kKBytes = kDimPanels * kCols * 128;
  static constexpr int kVBytes = kValuePanels * kCols * 128;
  static constexpr int kDsBytes = kCols / 64 * kRows * 128;
  // Columns of the sums of dQ.
  static constexpr int kDqDim = 64 * kDimPanels;
  // Consumers share a tile's dQ by rows, 64 each, if the tile has more than 64;
  // else by columns.
  static constexpr bool kDqByRows = kRows > 64;
  static constexpr int kDqCols = kDqByRows ? kDqDim : kDqDim / kConsumers;
  static constexpr int DqRow(int consumer) {
    return kDqByRows ? 64 * consumer : 0;
  }
  static constexpr int DqColumn(int consumer) {
    return kDqByRows ? 0 : kDqCols * consumer;
  }
  // A consumer reads LSE of so many of a tile's rows before it needs them.
  static constexpr int kEarlyRows = kRows > 64 ? 8 : 64;
  // Whether the describer reads a tile's flags from memory before it waits for
  // a slot of Q's ring. Tiles of more rows last long enough without.
  static constexpr bool kEarlyFlags = kRows == 64;
  // The floats that a warp has of a tile's dQ: 16 rows.
  static constexpr int kWarpDqFloats = 16 * kDqCols;
  // The panels that a block of a cluster needs of its neighbour's K, for its
  // part of dQ's columns: one for each consumer.
  static constexpr int kOtherPanels = kCluster == 2 ? kDimPanels / 2 : 0;
  // Consumers leave a tile's Q only after the next one has come.
  static_assert(kStages >= 2);
  static_assert(kCluster == 1 || (kWide && kOtherPanels == kConsumers));
  static_assert(kRows == 64 || (!kWide && kRows == 64 * kConsumers));
  static_assert(kWide || 64 % kDqCols == 0);
  static_assert(kDim % 16 == 0 && kValueDim % 16 == 0);
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_CONFIG_H_
