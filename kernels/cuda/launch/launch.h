#ifndef ATTND_KERNELS_CUDA_LAUNCH_LAUNCH_H_
#define ATTND_KERNELS_CUDA_LAUNCH_LAUNCH_H_

// What a group is cut into: for each kernel, the tiles of each problem.

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/kernel.h"
#include "kernels/cuda/launch/pack.h"

namespace attnd::cuda {

// Whether a problem has sequences to be decoded, and others; where it has
// padding beyond what decoding covers, there are others.
struct Kinds {
  bool decode = false, prefill = false;
};
Kinds KindsOf(const Problem& problem);

// The tiles of a problem in one launch.
struct Tiles {
  int64_t heads = 0;  // that have row blocks of their own, over the whole batch
  int64_t row_blocks = 0;  // of each
  int64_t parts = 1;       // of each, along the columns
  int64_t columns = 0;     // that one looks at
  int64_t tile_rows = 0;   // of a tile, that have partial results
  // Whose tiles alternate, of kernels that have it so.
  int64_t heads_together = 1;
  bool heads_follow = false;  // but one another, until the last so many

  int64_t count() const { return heads * row_blocks * parts; }
  int64_t records() const { return parts > 1 ? count() * tile_rows : 0; }
  int64_t counters() const { return parts > 1 ? heads * row_blocks : 0; }
};
Tiles RowTiles(const Problem& problem, const Kernel& kernel);
// Of backward: blocks of columns of each segment, of each K/V head; they stand
// in `row_blocks`.
Tiles ColumnTiles(const Problem& problem, const Kernel& kernel);

// What some kernels need of a problem beside itself.
struct RunExtras {
  BlobOffset maps = 0;       // tensor maps
  bool has_o_map = false;    // else the copy engine cannot write O
  BlobOffset gradients = 0;  // DeviceGradients
};

// One kernel with the tiles that a group has for it.
class Launch {
 public:
  explicit Launch(const Kernel& kernel) : kernel_(&kernel) {}

  // Nothing, if there are no tiles.
  void Add(const Blob& blob, BlobOffset problem, const Tiles& tiles,
           const RunExtras& extras = {}, const ReadAhead& ahead = {});

  // Puts the runs, those whose tiles take longest first, into the blob. Once.
  void Place(Blob& blob);

  // The same tiles for another kernel. After Place.
  Launch For(const Kernel& kernel) const {
    Launch other = *this;
    other.kernel_ = &kernel;
    return other;
  }
  // See LaunchParams.
  void set_plans_at(int64_t words) { plans_at_ = words; }
  int64_t plans_at() const { return plans_at_; }

  const Kernel& kernel() const { return *kernel_; }
  BlobOffset runs() const { return runs_at_; }
  int32_t num_runs() const { return static_cast<int32_t>(entries_.size()); }
  const TileRun& first_run() const { return first_run_; }
  const ReadAhead& ahead() const { return ahead_; }
  int64_t tiles() const { return tiles_; }
  int64_t records() const { return records_; }  // of partial results
  int64_t counters() const { return kernel_->persistent ? 1 : counters_; }

 private:
  struct Entry {
    TileRun run;
    Tiles tiles;
  };

  const Kernel* kernel_;
  std::vector<Entry> entries_;
  TileRun first_run_;
  ReadAhead ahead_;  // of the only entry
  int64_t tiles_ = 0, records_ = 0, counters_ = 0;
  BlobOffset runs_at_ = 0;
  int64_t plans_at_ = 0;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_LAUNCH_H_
