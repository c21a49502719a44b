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

// A tile of rows, as consumers need it; of what is no tile the kind alone is
// valid.
struct TileSlot {
  SlotKind kind;
  bool overflowed;  // by consumers: scores must be found again, not plain
  bool o_aligned;   // o is 16 bits wide, and its rows are aligned to 16 bytes
  bool o_boxed;     // the copy engine can store all rows that the tensor has
  int16_t valid;    // rows that may see something
  int16_t first_stored, end_stored;  // rows to be written
  int16_t value_dim;
  DType o_dtype;
  float factor;  // of softmax
  int first_row;
  void* o;     // its first row; or null
  float* lse;  // its first row; or null
  int64_t o_stride;
  int64_t tile;  // of the launch
  ScoreRule rule;
};

enum ColumnFlags : uint32_t {
  kLast = 1,    // of the tile of rows
  kMasked = 2,  // some row does not see all of it
  kPadded = 4,  // it has columns that are not to be read
};

// A tile of columns, for all rows of the block.
template <int kRows>
struct ColumnTile {
  uint32_t flags;  // bits of ColumnFlags
  int segment;
  int column;           // in the segment, the first
  int64_t bias_column;  // of a row of the bias, where it begins; of slow tiles
  uchar2 seen[kRows];   // if masked: what each row does, from x to before y
};

// The same tile of rows, as the loaders need it.
struct LoadSlot {
  TileDescription description;
  Sequence sequence;
  const CUtensorMap* maps;
  WalkPlace first;       // tile of columns; the loader moves it on
  BlobOffset described;  // the problem in `description`; 0: none
  int b, head, kv_head;  // sequence, q head, kv head
  int first_row;
  int16_t valid;  // rows
  SlotKind kind;
  bool copied;  // the maps are in memory, not a parameter
};

// O on its way to memory: panels of each warp of the consumers.
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
  // Panels of 128 bytes by rows, swizzled.
  std::byte q[Config::kQBuffers][Config::kConsumers][Config::kQBytes];
  std::byte k[Config::kStages][Config::kKBytes];
  std::byte v[Config::kStages][Config::kVBytes];
  Ring<Config::kQBuffers> q_rings[Config::kConsumers];
  Ring<Config::kStages> k_ring, v_ring;
  Ring<Config::kSlots> slot_ring;
  uint64_t known[Config::kSlots];   // by the planner: to loaders
  uint64_t claims[Config::kSlots];  // by the loader: nearly loaded
  TileSlot slots[Config::kSlots];
  ColumnTile<Config::kRows> columns[Config::kStages];
  LoadSlot load_slots[Config::kSlots];
  PlanningState<Config::kSlots> planning;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_SHARED_CUH_
