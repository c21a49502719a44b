#ifndef ATTND_KERNELS_CUDA_LAUNCH_DESCRIPTOR_H_
#define ATTND_KERNELS_CUDA_LAUNCH_DESCRIPTOR_H_

// A group of problems as the device sees it: plain data in one block of memory,
// whose parts refer to each other by their offset in it. launch/pack.h makes
// the block, tile/sequence.h reads it.

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"

namespace attnd::cuda {

// Bytes from the start of the block. Its first bytes hold nothing, so that an
// offset of 0 can mean that something is absent.
using BlobOffset = uint32_t;

// Tensors are in device memory, arrays (those with a BlobOffset) in the block.
struct alignas(16) DeviceSegment {
  ConstTensorView k;        // [batch, len, kv_heads, head_dim]
  ConstTensorView v;        // [batch, len, kv_heads, value_dim]
  int64_t len = 0;          // of the tensors; each sequence may have less
  int64_t start = 0;        // position of the first token
  int64_t stride = 1;       // positions from one token to the next
  int64_t bias_column = 0;  // where the segment begins in a row of the bias
  BlobOffset lens = 0;      // int64_t[batch]; absent: all sequences have len
  BlobOffset starts = 0;    // int64_t[batch]; absent: all have start
};

// What O and LSE of a problem's rows are to be merged with (RowState).
struct alignas(16) DeviceState {
  ConstTensorView o;  // [batch, q_len, q_heads, value_dim], f32
  ConstRowView lse;   // [batch, q_heads, q_len]
};

struct alignas(16) DeviceProblem {
  ConstTensorView q;  // [batch, q_len, q_heads, head_dim]
  TensorView o;   // [batch, q_len, q_heads, value_dim], as Q or f32, or null
  RowView lse;    // [batch, q_heads, q_len], or null
  BiasView bias;  // [batch, q_heads, q_len, all segments' tokens], or null
  int64_t batch = 0, q_len = 0;
  int64_t q_start = 0, q_stride = 1;  // positions, as a segment's
  int64_t left = -1, right = -1;      // the window: see RowIntervals in mask.h
  int64_t q_heads = 0, kv_heads = 0;
  int64_t group = 1;  // q heads per K/V head
  int32_t head_dim = 0, value_dim = 0;
  int32_t num_segments = 0;
  BlobOffset segments = 0;  // DeviceSegment[num_segments]
  BlobOffset q_lens = 0;    // int64_t[batch]; absent: all have q_len
  BlobOffset q_starts = 0;  // int64_t[batch]; absent: all have q_start
  BlobOffset before = 0;    // DeviceState; absent: nothing to merge with
  // Without q_start and q_starts row 0 stands at kv_len - q_len, each of the
  // sequence's own.
  bool has_q_start = false;
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
};

// The tiles of one problem in one launch: from first_tile to that of the next
// run. Each kernel defines what a tile is.
struct alignas(16) TileRun {
  int64_t first_tile = 0;
  int64_t first_record = 0;   // of the run's partial results, in scratch
  int64_t first_counter = 0;  // of the run's counters
  BlobOffset problem = 0;     // DeviceProblem
  BlobOffset segments = 0;    // DeviceSegment[num_segments], as the problem has
  BlobOffset maps = 0;        // CUtensorMap[], for kernels that read by them
  BlobOffset gradients = 0;   // DeviceGradients, for backward's kernels
  int32_t num_segments = 0;
  // Blocks of rows per q head; where kernels decode, per K/V head with all of
  // its q heads; where backward's tiles are of columns, blocks of columns per
  // K/V head.
  int64_t row_blocks = 0;
  int64_t heads_together = 1;  // see Tiles in launch.h
  int32_t chunk_blocks = 0;    // see Tiles
  int32_t parts = 1;           // parts per block of rows, at most
  bool has_o_map = false;      // whether `maps` has a valid one of O
  bool heads_follow = false;   // see Tiles, and PlaceOf in sm90/scheduler.cuh
};

// All that the blocks of threads of a kernel that decodes need to know to read
// Q and their first columns of K and V before they know anything else. There is
// such a thing where the launch has one problem, its sequences all have the
// problem's lengths, and its rows can be copied whole.
struct ReadAhead {
  ConstTensorView q, k, v;
  uint32_t kv_heads = 0, group = 0;  // as DeviceProblem has them
  uint32_t rows = 0;                 // rows of Q of all q heads of a K/V head
  uint32_t columns = 0;       // columns of K and V; 0: nothing is read ahead
  uint32_t part_columns = 0;  // columns of a part, which one block reads
};

// The parameter of every kernel that takes a group. A block of descriptors of
// at most this size travels in it, a larger one is copied to memory before the
// launch.
inline constexpr int kInlineBytes = 3712;

struct LaunchParams {
  const std::byte* blob = nullptr;  // in device memory; null: inline_blob
  BlobOffset runs = 0;              // TileRun[num_runs], first_tile ascending
  int32_t num_runs = 0;
  uint32_t num_tiles = 0;  // tiles of this launch, from first_tile on
  // In backward: whether blocks of columns take turns at the sums of dQ, which
  // tile/turns.cuh describes.
  bool in_turns = false;
  int64_t first_tile = 0;  // the tile of the first block of threads
  // Forward's partial results, or what gradient.h says of backward.
  float* scratch = nullptr;
  // In backward on a Hopper: the word of scratch where what must be known of
  // each tile in advance begins (Kernel::plan_bytes).
  int64_t plans_at = 0;
  uint32_t* counters = nullptr;  // 0 before and after every launch
  // A copy of the first run, which mostly is the only one: parameters are read
  // sooner than memory.
  TileRun first_run;
  ReadAhead ahead;
  alignas(128) std::byte inline_blob[kInlineBytes];
};
static_assert(sizeof(LaunchParams) <= 4096, "what every GPU takes");

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_DESCRIPTOR_H_
