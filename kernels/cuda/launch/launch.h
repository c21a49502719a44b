#ifndef ATTND_KERNELS_CUDA_LAUNCH_LAUNCH_H_
#define ATTND_KERNELS_CUDA_LAUNCH_LAUNCH_H_

// A launch: one kernel, with the tiles of each problem of a group that runs in
// it.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/kernel.h"
#include "kernels/cuda/launch/pack.h"

namespace attnd::cuda {

// Which kinds of sequences a problem has: those of so few queries that they are
// decoded (IsDecode), and others. A problem padded to more queries than
// decoding covers has others, whatever its sequences' own lengths.
struct Kinds {
  bool decode = false, prefill = false;
};
Kinds KindsOf(const Problem& problem);

// The tiles of a problem in one launch. A head's rows are cut into row blocks,
// and each row block into parts along the columns: each part is a tile.
struct Tiles {
  const Problem* problem = nullptr;
  bool are_columns = false;  // blocks are of columns: see ColumnTiles
  bool last_first = false;   // of columns: a head's last block comes first
  // Of some K/V heads the first block comes first all the same: see ColumnsGoUp
  // in tile/column_order.h. The problem's head 0 is first_kv_head of the
  // whole_kv_heads that its sequences have.
  bool alternates = false;
  int64_t first_kv_head = 0, whole_kv_heads = 0;
  int64_t heads = 0;       // of the whole batch; each has its own row blocks
  int64_t row_blocks = 0;  // row blocks per head
  int64_t parts = 1;       // parts per row block
  int64_t columns = 0;     // columns that one tile reads
  int64_t tile_rows = 0;   // rows per tile that leave partial results
  // Heads interleaved block by block: a section. Some kernels ignore it.
  int64_t heads_together = 1;
  // Of columns: see ColumnOrder in tile/column_order.h.
  int64_t chunk_blocks = 0;
  // Heads run one after another, except in the last section.
  bool heads_follow = false;

  int64_t count() const { return heads * row_blocks * parts; }
  int64_t records() const { return parts > 1 ? count() * tile_rows : 0; }
  int64_t counters() const { return parts > 1 ? heads * row_blocks : 0; }
};
// One tile for each block of rows of each q head, over all columns.
Tiles RowTiles(const Problem& problem, const Kernel& kernel);
// Backward has one tile for each block of columns of each segment and K/V head,
// over all rows; `row_blocks` is the number of a head's blocks of columns.
Tiles ColumnTiles(const Problem& problem, const Kernel& kernel);

// What some kernels need beside the problem, and where it lies in the blob.
struct RunExtras {
  BlobOffset maps = 0;       // CUtensorMap[]: see sm90/tensor_maps.h
  bool has_o_map = false;    // whether the copy engine can write O
  BlobOffset gradients = 0;  // DeviceGradients
};

// One kernel with the tiles that a group has for it. First every problem is
// added, then Place puts them in order; only then are the numbers below known.
// For one thread at a time.
class Launch {
 public:
  // `kernel` must outlive it.
  explicit Launch(const Kernel& kernel) : kernel_(&kernel) {}

  // Adds the tiles of the problem at `problem` in the blob, if there are any.
  void Add(const Blob& blob, BlobOffset problem, const Tiles& tiles,
           const RunExtras& extras = {}, const ReadAhead& ahead = {});

  // Puts the tiles of each problem into the blob as a TileRun, those of the
  // longest tiles first. To be called once.
  void Place(Blob& blob);

  // The tiles that were placed as the nth run.
  struct Placed {
    const Tiles& tiles;
    int64_t first_tile;
  };
  Placed placed(int n) const {
    const Entry& entry = entries_[order_[n].second];
    return {entry.tiles, entry.run.first_tile};
  }

  // A launch of another kernel for the same tiles. After Place.
  Launch For(const Kernel& kernel) const {
    Launch other = *this;
    other.kernel_ = &kernel;
    return other;
  }
  // As LaunchParams has it.
  void set_plans_at(int64_t words) { plans_at_ = words; }
  int64_t plans_at() const { return plans_at_; }

  const Kernel& kernel() const { return *kernel_; }
  BlobOffset runs() const { return runs_at_; }  // TileRun[num_runs()]
  int32_t num_runs() const { return static_cast<int32_t>(entries_.size()); }
  const TileRun& first_run() const { return first_run_; }
  const ReadAhead& ahead() const { return ahead_; }
  int64_t tiles() const { return tiles_; }
  // Rows of partial results that the tiles leave in scratch.
  int64_t records() const { return records_; }
  // Counters that the kernel needs: a persistent one takes its tiles from one,
  // others count the parts of each row block that are done.
  int64_t counters() const { return kernel_->persistent ? 1 : counters_; }

 private:
  struct Entry {
    TileRun run;
    Tiles tiles;
  };

  const Kernel* kernel_;
  std::vector<Entry> entries_;
  // Of each run -columns and its entry, which is too large to move.
  std::vector<std::pair<int64_t, size_t>> order_;
  TileRun first_run_;
  ReadAhead ahead_;  // of the only entry; nothing if there are more
  int64_t tiles_ = 0, records_ = 0, counters_ = 0;
  BlobOffset runs_at_ = 0;
  int64_t plans_at_ = 0;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_LAUNCH_H_
