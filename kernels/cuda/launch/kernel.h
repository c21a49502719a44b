#ifndef ATTND_KERNELS_CUDA_LAUNCH_KERNEL_H_
#define ATTND_KERNELS_CUDA_LAUNCH_KERNEL_H_

// A compiled kernel of the fused forward or backward, and which sequences are
// decoded.

#include <cstdint>

namespace attnd::cuda {

// Sequences of at most this many queries are decoded.
inline constexpr int64_t kDecodeRows = 16;
constexpr bool IsDecode(int64_t q_len) { return q_len <= kDecodeRows; }

// Where an element of dQ lies while backward sums it up in f32: as the threads
// that add to it hold it.
enum class DqLayout : int32_t {
  kRows,  // [row, dim]
  // Blocks of 16 x 16 as mma fragments, of which each lane holds 8 words:
  kLanes,  // [8 words, lane]
  kQuads,  // [half, lane, 4 words]
};

// "Blocks" are blocks of threads here.
struct Kernel {
  const char* name = nullptr;      // e.g. "cuda/sm80/prefill_bf16_d128"
  const void* function = nullptr;  // void(LaunchParams)
  int rows = 0;                    // rows of a tile of scores
  int cols = 0;                    // and its columns
  int threads = 0;                 // threads of a block
  int shared_bytes = 0;            // dynamic shared memory of a block
  int dim = 0;  // what head_dim and value_dim are rounded up to
  // Blocks take tiles from a counter and stay until there are no more.
  bool persistent = false;
  // Backward's kernel reads its inputs by tensor maps.
  bool needs_maps = false;
  // Blocks 2i and 2i + 1 gain by being near each other.
  bool paired = false;
  // Blocks of a cluster, which work on a tile together: 1 or 2.
  int cluster = 1;
  // Backward's kernel sums up dQ in this layout, in rows of dq_dim columns (0:
  // of dim).
  DqLayout dq_layout = DqLayout::kRows;
  int dq_dim = 0;
  // Bytes per tile of what the kernel must know of it in advance, which another
  // launch finds out and leaves in scratch.
  int plan_bytes = 0;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_KERNEL_H_
