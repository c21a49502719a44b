#include "kernels/cuda/sm80/plan.h"

#include <algorithm>

#include "kernels/cuda/sm80/config.h"

namespace attnd::cuda::sm80 {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Kinds KindsOf(const Problem& p) {
  if (IsDecode(p.q_len)) return {.decode = true};
  return {.decode = std::any_of(p.q_lens.begin(), p.q_lens.end(), IsDecode),
          .prefill = true};
}

Tiles DecodeTiles(const Problem& p) {
  const int64_t columns = PaddedKvLen(p);
  Tiles tiles;
  tiles.heads = p.batch * p.kv_heads;
  tiles.row_blocks =
      CeilDiv(std::min(p.q_len, kDecodeRows) * p.group(), kDecodeTile);
  tiles.parts = MostParts(columns);
  tiles.columns = std::min(columns, PartColumns(columns));
  tiles.tile_rows = TileRows(p.q_len, p.group());
  return tiles;
}

Tiles RowTiles(const Problem& p, const Kernel& kernel) {
  Tiles tiles;
  tiles.heads = p.batch * p.q_heads;
  tiles.row_blocks = CeilDiv(p.q_len, kernel.rows);
  tiles.columns = PaddedKvLen(p);
  return tiles;
}

void Launch::Add(const Blob& blob, BlobOffset problem, const Tiles& tiles) {
  if (tiles.count() == 0) return;
  const DeviceProblem packed = blob.problem(problem);
  TileRun run;
  run.problem = problem;
  run.segments = packed.segments;
  run.num_segments = packed.num_segments;
  run.row_blocks = tiles.row_blocks;
  run.parts = static_cast<int32_t>(tiles.parts);
  entries_.push_back({run, tiles});
}

// The longest first, so that the end is not one of them alone.
void Launch::Place(Blob& blob) {
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) {
                     return a.tiles.columns > b.tiles.columns;
                   });
  std::vector<TileRun> runs;
  runs.reserve(entries_.size());
  for (Entry& entry : entries_) {
    entry.run.first_tile = tiles_;
    entry.run.first_record = records_;
    entry.run.first_counter = counters_;
    tiles_ += entry.tiles.count();
    records_ += entry.tiles.records();
    counters_ += entry.tiles.counters();
    runs.push_back(entry.run);
  }
  runs_at_ = blob.Append(absl::MakeConstSpan(runs));
}

}  // namespace attnd::cuda::sm80
