#ifndef ATTND_KERNELS_CUDA_LAUNCH_KERNEL_H_
#define ATTND_KERNELS_CUDA_LAUNCH_KERNEL_H_

// A compiled kernel of the fused passes, and which sequences go where.

#include <cstdint>

namespace attnd::cuda {

// Sequences of at most this many queries are decoded.
inline constexpr int64_t kDecodeRows = 16;
constexpr bool IsDecode(int64_t q_len) { return q_len <= kDecodeRows; }

// Where an element of dQ is while backward sums it up in f32: it lies as the
// threads that add to it hold it.
enum class DqLayout : int32_t {
  kRows,   // [row, dim]
  kLanes,  // blocks of 16 x 16 as 8 words of each lane's mma fragment, by word
  kQuads,  // the same, by half and lane: 4 words of a lane side by side
};

struct Kernel {
  const char* name = nullptr;      // e.g. "cuda/sm80/prefill_bf16_d128"
  const void* function = nullptr;  // void(LaunchParams)
  int rows = 0;                    // of a tile
  int cols = 0;                    // of a tile
  int threads = 0;
  int shared_bytes = 0;  // dynamic
  int dim = 0;           // what head_dim and value_dim are rounded up to
  // Blocks stay until there are no more tiles, which they take from a counter.
  bool persistent = false;
  bool needs_maps = false;  // tensor maps, of backward's kernels
  // Blocks 2i and 2i + 1 gain by being near each other.
  bool paired = false;
  // Blocks that have a tile together, in a cluster; at most 2.
  int cluster = 1;
  // Of backward's kernels: how dQ is summed up, in rows of as many columns.
  DqLayout dq_layout = DqLayout::kRows;
  int dq_dim = 0;  // 0: dim
  // What must be known of a tile in advance, in the launch's scratch.
  int plan_bytes = 0;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_KERNEL_H_
