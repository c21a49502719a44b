#ifndef ATTND_KERNELS_CUDA_SM90_SHARED_CUH_
#define ATTND_KERNELS_CUDA_SM90_SHARED_CUH_

// What a block of the forward kernel has in shared memory: the tiles, and how
// its planner, its loaders and its consumers tell each other what is in them.

#include <cstdint>

#include "kernels/cuda/sm90/column_walk.cuh"
#include "kernels/cuda/sm90/planning.cuh"
#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/ring.cuh"
#include "kernels/cuda/sm90/scheduler.cuh"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/score.cuh"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda::sm90 {

// What consumers need to know of a tile of rows. The planner writes it before
// slot_ring's full, consumers read it before its empty. For kDrain and kEnd
// only `kind` is set.
struct TileSlot {
  SlotKind kind;
  // Set by consumers, read by the planner: a score has overflowed, and the tile
  // must be done again as kSlow.
  bool overflowed;
  bool o_aligned;  // O's rows are aligned to 16 bytes
  bool o_boxed;    // the copy engine can store all rows that O has of the tile
  // The tile ends before the next begins: its rows are merged with what they
  // have before, or its O is of f32. Beside the next one's S there are no
  // registers for either.
  bool alone;
  int16_t valid;  // so many rows, the first ones, may see something
  int16_t first_stored, end_stored;  // the rows to be written: [first, end)
  int16_t value_dim;
  DType o_dtype;
  float factor;      // what softmax multiplies scores by, ScoreRule::factor
  int first_row;     // the tile's first row, in its sequence
  void* o;           // O of that row, [rows, value_dim]; or null
  float* lse;        // LSE of that row, [rows]; or null
  int64_t o_stride;  // elements from row to row of O
  int64_t tile;      // its number in the launch
  ScoreRule rule;
};

enum ColumnFlags : uint32_t {
  kLast = 1,    // the tile of rows visits no more after this one
  kMasked = 2,  // some row does not see all of its columns
  kPadded = 4,  // it has columns that must not be read, past the sequence's end
};

// What the loader says of a tile of columns, for all rows of the tile of rows.
// It is written before K's full, and read by consumers before K's empty and by
// the loader when it loads V.
template <int kRows>
struct ColumnTile {
  uint32_t flags;  // bits of ColumnFlags
  int segment;
  int column;           // the tile's first, in the segment
  int64_t bias_column;  // the same in a row of the bias; set for kSlow rows
  uchar2 seen[kRows];   // if kMasked: each row sees the tile's columns [x, y)
};

// What the loaders need to know of the same tile of rows, and consumers when
// they store O. The planner writes it before `known`, and all have read it
// before slot_ring's empty.
struct LoadSlot {
  TileDescription description;
  Sequence sequence;
  const CUtensorMap* maps;
  WalkPlace first;       // the first tile of columns; the loader moves it on
  BlobOffset described;  // the problem that is in `description`; 0: none
  int b, head, kv_head;  // sequence, q head, kv head
  int first_row;         // as in TileSlot
  int16_t valid;         // as in TileSlot
  SlotKind kind;
  bool copied;  // whether the maps are in memory, not in the parameters
};

// O on its way to memory: T [kWarps][kPanels][kWarpRows][64]. Each warp of the
// consumers writes its own panels, which the copy engine then stores.
template <int kWarps, int kPanels>
struct OutputPanels {
  std::byte o[kWarps][kPanels][kWarpRows * 128];

  __device__ uint32_t OutputOf(int warp) { return ptx::SharedAddress(o[warp]); }
};
template <int kWarps>
struct OutputPanels<kWarps, 0> {
  __device__ uint32_t OutputOf(int) { return 0; }
};

template <class Config>
struct alignas(1024) Shared
    : OutputPanels<4 * Config::kConsumers, Config::kOutputPanels> {
  // Tiles T [rows, dim], in swizzled panels (config.h): 64 rows of Q for each
  // consumer, [kCols, kDim] of K, [kCols, kValueDim] of V.
  std::byte q[Config::kQBuffers][Config::kConsumers][Config::kQBytes];
  std::byte k[Config::kStages][Config::kKBytes];
  std::byte v[Config::kStages][Config::kVBytes];
  // full: rows' loader, copy engine → the consumer; empty: its four warps →
  // rows' loader.
  Ring<Config::kQBuffers> q_rings[Config::kConsumers];
  // full: loader, copy engine → consumers; empty: their warps → loader.
  Ring<Config::kStages> k_ring, v_ring;
  // full: planner → consumers; empty: both loaders, every warp of the consumers
  // → planner.
  Ring<Config::kSlots> slot_ring;
  uint64_t known[Config::kSlots];  // planner → loaders: the LoadSlot is written
  uint64_t claims[Config::kSlots];  // loader → planner: tile nearly loaded
  TileSlot slots[Config::kSlots];
  ColumnTile<Config::kRows> columns[Config::kStages];
  LoadSlot load_slots[Config::kSlots];
  PlanningState<Config::kSlots> planning;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_SHARED_CUH_
