#ifndef ATTND_KERNELS_CUDA_SM90_CONFIG_H_
#define ATTND_KERNELS_CUDA_SM90_CONFIG_H_

// The shapes that the forward kernel comes in; README.md has what was tried.

#include <cstdint>

namespace attnd::cuda::sm90 {

// How the forward kernel is cut.
struct ForwardShape {
  int dim, value_dim;  // what head_dim and value_dim are rounded up to
  int64_t from, to;    // of the sequences that it takes, kv_len: [from, to)
  int consumers;       // warpgroups that compute, 64 rows each
  int cols;            // of a tile of K and V
  int stages;          // tiles of K, and of V, in shared memory
  int q_buffers;       // tiles of Q: with two the next is loaded early
  int slots;  // tiles of rows that are known of: worked on, being loaded, next
  int o_panels;  // for O on its way to memory, of a warp; 0: it goes straight
  // Whether P waits for the P·V before it, and is rounded as it is found; else
  // both run side by side, and P is rounded when both are over.
  bool awaits_o;
  int producer_registers;  // of a thread; together at most 65536 a block
  int consumer_registers;
  const char* why;  // this shape, and not another

  constexpr bool Takes(int64_t kv_len) const {
    return from <= kv_len && kv_len < to;
  }
};

inline constexpr int64_t kAnyLength = INT64_MAX;
inline constexpr int kConsumerRows = 64;  // of a consumer
inline constexpr int kWarpRows = 16;      // of one of its warps
// Columns from which a sequence is long, where there are two shapes.
inline constexpr int64_t kLong = 1024;

// From small dims to large; README.md has the same as a table.
inline constexpr ForwardShape kForwardShapes[] = {
    {64, 64, 0, kLong, 2, 128, 4, 2, 4, 1, true, 72, 216,
     "128 rows and columns divide the usual lengths; of 192 × 112 a tenth is "
     "not used at 512. Four consumers of 64 columns, which take no turns, are "
     "no faster"},
    {64, 64, kLong, kAnyLength, 3, 112, 4, 2, 4, 1, true, 72, 144,
     "a fifth faster than two consumers; of 128 columns three need 160 "
     "registers each, and the producers spill"},
    {96, 96, 0, kAnyLength, 2, 128, 2, 2, 3, 2, false, 72, 216,
     "S, P and O of a third consumer do not fit the registers"},
    {128, 128, 0, kAnyLength, 2, 128, 2, 2, 3, 2, false, 72, 216,
     "fills the shared memory; with 160 columns there is room for one tile of "
     "Q, and short sequences lose more than long ones gain. Three consumers of "
     "64 or 80 columns are slower"},
    {192, 128, 0, kAnyLength, 2, 128, 2, 1, 4, 0, false, 72, 216,
     "as 128, but there is memory for one tile of Q and, with four slots, none "
     "of O; three slots were not tried"},
    {192, 192, 0, kAnyLength, 2, 96, 2, 1, 4, 1, false, 72, 216,
     "two tiles of K and V of 112 columns do not fit the shared memory"},
    {256, 256, 0, kLong, 2, 64, 2, 1, 4, 1, false, 72, 216,
     "64 columns divide the usual lengths, and leave room for O"},
    {256, 256, kLong, kAnyLength, 2, 80, 2, 1, 3, 0, false, 72, 216,
     "a tenth faster than 64 columns; two tiles of K and V of 96 do not fit "
     "the shared memory"},
};

// The shape for sequences of `kv_len` columns.
constexpr ForwardShape ShapeOf(int dim, int value_dim, int64_t kv_len) {
  for (const ForwardShape& shape : kForwardShapes) {
    if (shape.dim == dim && shape.value_dim == value_dim &&
        shape.Takes(kv_len)) {
      return shape;
    }
  }
  return {};
}

// The kernel whose shape begins at kFrom columns.
template <class T_, int kDim_, int kValueDim_, int64_t kFrom>
struct ForwardConfig {
  using T = T_;
  static constexpr int kDim = kDim_, kValueDim = kValueDim_;
  static constexpr ForwardShape kShape = ShapeOf(kDim, kValueDim, kFrom);
  static constexpr int64_t kTo = kShape.to;
  static constexpr bool Takes(int64_t kv_len) {
    return kFrom <= kv_len && kv_len < kTo;
  }
  static constexpr int kConsumers = kShape.consumers;
  static constexpr int kRows = kConsumerRows * kConsumers, kCols = kShape.cols;
  static constexpr int kStages = kShape.stages;
  static constexpr int kQBuffers = kShape.q_buffers;
  static constexpr int kSlots = kShape.slots;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  // Panels of 64 columns, 128 bytes of each row.
  static constexpr int kDimPanels = (kDim + 63) / 64;
  static constexpr int kValuePanels = (kValueDim + 63) / 64;
  static constexpr int kQBytes = kDimPanels * kConsumerRows * 128;
  // Of each warp of the consumers: where O is on its way to memory.
  static constexpr int kOutputPanels = kShape.o_panels;
  static constexpr int kKBytes = kDimPanels * kCols * 128;
  static constexpr int kVBytes = kValuePanels * kCols * 128;
  static_assert(kCols % 16 == 0 && kDim % 16 == 0 && kValueDim % 16 == 0);
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_CONFIG_H_
