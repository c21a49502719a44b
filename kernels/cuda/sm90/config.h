#ifndef ATTND_KERNELS_CUDA_SM90_CONFIG_H_
#define ATTND_KERNELS_CUDA_SM90_CONFIG_H_

// The shapes that the forward kernel comes in; README.md has what was tried.

#include <cstdint>

namespace attnd::cuda::sm90 {

// How the forward kernel is cut.
struct ForwardShape {
  int dim, value_dim;  // what head_dim and value_dim are rounded up to
  int64_t from, to;    // it takes sequences whose kv_len is in [from, to)
  int consumers;       // warpgroups that compute, with 64 rows each
  int cols;            // columns of a tile of K and V
  int stages;          // slots of K's ring, and of V's
  int q_buffers;       // slots of Q's: with two the next tile is loaded early
  int slots;  // tiles of rows that are worked on, being loaded or planned
  // Panels of 64 columns in shared memory by which each warp's O goes to
  // memory; 0: O goes there straight from registers.
  int o_panels;
  // Whether a consumer waits for the P·V before it computes the next P, which
  // it can then round as it goes. Else both run side by side, and P is rounded
  // when both are over, as wgmma still reads the registers of the rounded P.
  bool awaits_o;
  int producer_registers;  // per thread; a block has at most 65536 in all
  int consumer_registers;
  const char* why;  // why this shape, and not another

  constexpr bool Takes(int64_t kv_len) const {
    return from <= kv_len && kv_len < to;
  }
};

inline constexpr int64_t kAnyLength = INT64_MAX;
inline constexpr int kConsumerRows = 64;  // rows of a tile that a consumer has
inline constexpr int kWarpRows = 16;      // rows that each of its warps has
// From so many columns on a sequence is long, where dims have two shapes.
inline constexpr int64_t kLong = 1024;

// From small dims to large, as FindForward takes the first that fits. README.md
// has the same as a table.
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

// What a kernel is compiled for: elements of type T, f16 or bf16, and the shape
// of these dims that takes sequences from kFrom columns on.
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
  // A tile lies in shared memory as panels of 64 columns: T [panels][rows][64],
  // a row of 128 bytes, in wgmma's swizzle of 128 bytes.
  static constexpr int kDimPanels = (kDim + 63) / 64;
  static constexpr int kValuePanels = (kValueDim + 63) / 64;
  static constexpr int kQBytes = kDimPanels * kConsumerRows * 128;
  // Each consumer warp's panels T [kWarpRows][64], by which O goes to memory.
  static constexpr int kOutputPanels = kShape.o_panels;
  static constexpr int kKBytes = kDimPanels * kCols * 128;
  static constexpr int kVBytes = kValuePanels * kCols * 128;
  static_assert(kCols % 16 == 0 && kDim % 16 == 0 && kValueDim % 16 == 0);
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_CONFIG_H_
