#ifndef ATTND_KERNELS_CUDA_SM90_SHARED_CUH_
#define ATTND_KERNELS_CUDA_SM90_SHARED_CUH_

// What a block of the forward kernel has in shared memory: the tiles, and how
// its planner, its loader and its consumers tell each other what is in them.

#include <cstdint>

#include "kernels/cuda/open_tile.cuh"
#include "kernels/cuda/score.cuh"
#include "kernels/cuda/sequence.h"
#include "kernels/cuda/sm90/column_walk.cuh"
#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/scheduler.cuh"

namespace attnd::cuda::sm90 {

enum class SlotKind : uint8_t {
  kFast,   // a tile whose scores are plain, see ScoreRule
  kSlow,   // one whose scores are not
  kEmpty,  // one whose rows see nothing: no K and V come for it
  kDrain,  // no tile; the next may depend on what comes of those before
  kEnd,    // no tile, and none comes any more
};

// A tile of rows, as consumers need it; of what is no tile the kind alone is
// valid.
struct TileSlot {
  SlotKind kind;
  bool overflowed;  // by consumers: scores must be found again, not plain
  int valid;        // rows that may see something
  int first_stored, end_stored;  // rows to be written
  float factor;                  // of softmax
  int value_dim;
  DType o_dtype;
  void* o;     // its first row; or null
  float* lse;  // its first row; or null
  int64_t o_stride;
  int64_t first_row;
  int64_t tile;  // of the launch
  ScoreRule rule;
};

// A tile of columns, for all rows of the block.
template <int kRows>
struct ColumnTile {
  bool last;    // of the tile of rows
  bool masked;  // some row does not see all of it
  bool padded;  // it has columns that are not to be read
  int segment;
  uint32_t column;      // in the segment, the first
  int64_t bias_column;  // of a row of the bias, where it begins; of slow tiles
  // If masked: what each row sees of it, from the low 16 bits to before the
  // high ones.
  uint32_t seen[kRows];
};

// Who tells whom: `full`, that it is there; `empty`, everyone who has read it
// that he has left.
template <int kCount>
struct Ring {
  uint64_t full[kCount], empty[kCount];

  __device__ void Init(int producers, int consumers) {
    for (int i = 0; i < kCount; ++i) {
      ptx::BarrierInit(ptx::SharedAddress(&full[i]), producers);
      ptx::BarrierInit(ptx::SharedAddress(&empty[i]), consumers);
    }
  }
};

// Where in a ring someone is: how many places it has come past.
template <int kCount>
class RingPlace {
 public:
  __device__ int index() const { return count_ % kCount; }
  __device__ uint32_t parity() const { return count_ / kCount % 2; }
  __device__ void Next() { ++count_; }
  __device__ uint32_t count() const { return count_; }

 private:
  uint32_t count_ = 0;
};

// The same tile, as the loader needs it.
struct LoadSlot {
  TileDescription description;
  BlobOffset described;  // the problem in it; 0: none
  Sequence sequence;
  TilePlace place;
  int valid;
  int64_t first_row, last_row;  // last: of the valid ones
  WalkPlace first;              // tile of columns
  const CUtensorMap* maps;
  bool copied;  // the maps are in memory, not a parameter
};

template <class Config>
struct alignas(1024) Shared {
  // Panels of 128 bytes by rows, swizzled.
  std::byte q[Config::kQBuffers][Config::kQBytes];
  std::byte k[Config::kStages][Config::kKBytes];
  std::byte v[Config::kStages][Config::kVBytes];
  Ring<Config::kQBuffers> q_ring;
  Ring<Config::kStages> k_ring, v_ring;
  Ring<Config::kSlots> slot_ring;
  uint64_t claim;  // by the loader, that the next slot's tile is wanted
  TileSlot slots[Config::kSlots];
  ColumnTile<Config::kRows> columns[Config::kStages];
  LoadSlot load_slots[Config::kSlots];
  int64_t redo[Config::kSlots];  // the planner's own: tiles that are to be done
                                 // again
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_SHARED_CUH_
