#ifndef ATTND_KERNELS_CUDA_LAUNCH_DESCRIPTOR_H_
#define ATTND_KERNELS_CUDA_LAUNCH_DESCRIPTOR_H_

// A group of problems as the device sees it: plain data in one block of memory,
// whose parts name each other by their offset in it. pack.h makes it,
// sequence.h reads it.

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"

namespace attnd::cuda {

// Bytes from the start of the block. The block starts with nothing, so that 0
// can mean: absent.
using BlobOffset = uint32_t;

struct alignas(16) DeviceSegment {
  ConstTensorView k;  // [batch, len, kv_heads, head_dim]
  ConstTensorView v;  // [batch, len, kv_heads, value_dim]
  int64_t len = 0;
  int64_t start = 0, stride = 1;
  int64_t bias_column = 0;  // where the segment begins in a row of the bias
  BlobOffset lens = 0;      // int64_t[batch]; absent: all len
  BlobOffset starts = 0;    // int64_t[batch]; absent: all start
};

struct alignas(16) DeviceProblem {
  ConstTensorView q;  // [batch, q_len, q_heads, head_dim]
  TensorView o;   // [batch, q_len, q_heads, value_dim], as Q or f32, or null
  RowView lse;    // [batch, q_heads, q_len], or null
  BiasView bias;  // [batch, q_heads, q_len, all segments' tokens], or null
  int64_t batch = 0, q_len = 0;
  int64_t q_start = 0, q_stride = 1;
  int64_t left = -1, right = -1;  // as RowIntervals has them
  int64_t q_heads = 0, kv_heads = 0;
  int64_t group = 1;  // q heads of a kv head
  int32_t head_dim = 0, value_dim = 0;
  int32_t num_segments = 0;
  BlobOffset segments = 0;   // DeviceSegment[num_segments]
  BlobOffset q_lens = 0;     // int64_t[batch]; absent: all q_len
  BlobOffset q_starts = 0;   // int64_t[batch]; absent: all q_start
  bool has_q_start = false;  // else, and without q_starts: kv_len - q_len
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
};

// The tiles of one problem in one launch: from first_tile to the next run's.
// What a tile is, the kernel says.
struct alignas(16) TileRun {
  int64_t first_tile = 0;
  int64_t first_record = 0;   // of the run's partial results, in scratch
  int64_t first_counter = 0;  // and of its counters
  BlobOffset problem = 0;     // DeviceProblem
  BlobOffset segments = 0;    // its segments
  BlobOffset maps = 0;        // CUtensorMap[], of kernels that use them
  BlobOffset gradients = 0;   // DeviceGradients, of backward's kernels
  int32_t num_segments = 0;
  // Of a sequence's head, or group of heads; of a K/V head's columns where
  // backward's tiles are of columns.
  int64_t row_blocks = 0;
  int64_t heads_together = 1;  // whose tiles alternate, of some kernels
  int32_t parts = 1;       // that the columns of a row are cut into, at most
  bool has_o_map = false;  // whether O's among `maps` is one
  // Whether heads take turns in the last section alone, see sm90's PlaceOf.
  bool heads_follow = false;
};

// What blocks that decode need to read Q and their first columns of K and V,
// before they know anything else. Of a launch of one problem, whose sequences
// have all its lengths and whose rows can be copied whole.
struct ReadAhead {
  ConstTensorView q, k, v;
  uint32_t kv_heads = 0, group = 0;
  uint32_t rows = 0;          // of Q, of all q heads of a K/V head
  uint32_t columns = 0;       // of K and V; 0: nothing is read ahead
  uint32_t part_columns = 0;  // of a block
};

// What a grouped kernel gets. A small block travels in here, a larger one is
// copied to memory before the launch.
inline constexpr int kInlineBytes = 3712;

struct LaunchParams {
  const std::byte* blob = nullptr;  // in device memory; null: inline_blob
  BlobOffset runs = 0;              // TileRun[num_runs], first_tile ascending
  int32_t num_runs = 0;
  uint32_t num_tiles = 0;  // of this launch
  // Of backward: blocks of columns take turns at the sums of dQ; see turns.cuh.
  bool in_turns = false;
  int64_t first_tile = 0;    // that of the first block of threads
  float* scratch = nullptr;  // partial results; of backward, see gradient.h
  // Of backward for Hopper: where in the scratch, in words, is what it knows of
  // each tile.
  int64_t plans_at = 0;
  uint32_t* counters = nullptr;  // 0 before and after every launch
  TileRun first_run;  // mostly the only one; nothing is as near as parameters
  ReadAhead ahead;
  alignas(128) std::byte inline_blob[kInlineBytes];
};
static_assert(sizeof(LaunchParams) <= 4096, "what every GPU takes");

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_DESCRIPTOR_H_
