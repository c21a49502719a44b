#include "kernels/cuda/launch/launch.h"

#include <algorithm>
#include <cstddef>

namespace attnd::cuda {
namespace {

// Bytes of K and V that stay in the L2 cache while all blocks read them. An
// H200 has 50 MiB, of which each half of the multiprocessors sees 25.
constexpr int64_t kCachedBytes = int64_t{16} << 20;
// Tiles that are handed out longest first: two for each multiprocessor.
constexpr int64_t kSectionTiles = 264;
// A head of at most this many row blocks is short.
constexpr int64_t kShortBlocks = 8;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Sets the section: the q heads that are interleaved block by block. They are
// those of one K/V head, so that all blocks read its K and V at the same time.
// Where a mask makes tiles unlike they are those of several K/V heads, so that
// a launch does not end with a few long tiles. But where heads are short, and
// the cache holds fewer of them than give each multiprocessor a tile, reading K
// and V at the same time counts for more: heads then follow one another.
void SetOrder(const Problem& p, Tiles& tiles) {
  tiles.heads_together = p.group();
  const bool alike = !p.mask.causal && p.mask.left < 0 && p.mask.right < 0;
  if (alike || tiles.row_blocks == 0) return;
  const int64_t kv_bytes =
      PaddedKvLen(p) * (p.head_dim + p.value_dim) * SizeOf(p.dtype());
  const int64_t cached = kCachedBytes / std::max<int64_t>(kv_bytes, 1);
  const int64_t enough = CeilDiv(kSectionTiles, tiles.row_blocks * p.group());
  const int64_t kv_heads = std::clamp<int64_t>(
      std::min(cached, enough), 1, std::max<int64_t>(p.batch * p.kv_heads, 1));
  tiles.heads_together = kv_heads * p.group();
  tiles.heads_follow = tiles.row_blocks <= kShortBlocks && 2 * cached <= enough;
}

}  // namespace

Kinds KindsOf(const Problem& p) {
  if (IsDecode(p.q_len)) return {.decode = true};
  return {.decode = std::any_of(p.q_lens.begin(), p.q_lens.end(), IsDecode),
          .prefill = true};
}

Tiles RowTiles(const Problem& p, const Kernel& kernel) {
  Tiles tiles;
  tiles.problem = &p;
  tiles.heads = p.batch * p.q_heads;
  tiles.row_blocks = CeilDiv(p.q_len, kernel.rows);
  tiles.columns = PaddedKvLen(p);
  SetOrder(p, tiles);
  return tiles;
}

Tiles ColumnTiles(const Problem& p, const Kernel& kernel) {
  Tiles tiles;
  tiles.problem = &p;
  tiles.are_columns = true;
  tiles.heads = p.batch * p.kv_heads;
  for (const KvSegment& s : p.kv) {
    tiles.row_blocks += CeilDiv(s.len, kernel.cols);
  }
  // What a tile's time grows with: it reads these rows, not columns.
  tiles.columns = p.q_len * p.group();
  return tiles;
}

void Launch::Add(const Blob& blob, BlobOffset problem, const Tiles& tiles,
                 const RunExtras& extras, const ReadAhead& ahead) {
  if (tiles.count() == 0) return;
  const DeviceProblem packed = blob.problem(problem);
  TileRun run;
  run.problem = problem;
  run.segments = packed.segments;
  run.num_segments = packed.num_segments;
  run.maps = extras.maps;
  run.has_o_map = extras.has_o_map;
  run.gradients = extras.gradients;
  run.heads_together = tiles.heads_together;
  run.chunk_blocks = static_cast<int32_t>(tiles.chunk_blocks);
  run.heads_follow = tiles.heads_follow;
  run.row_blocks = tiles.row_blocks;
  run.parts = static_cast<int32_t>(tiles.parts);
  ahead_ = entries_.empty() ? ahead : ReadAhead{};
  entries_.push_back({run, tiles});
}

// The longest come first, so that a launch does not end with one of them alone.
void Launch::Place(Blob& blob) {
  order_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    order_.push_back({-entries_[i].tiles.columns, i});
  }
  std::sort(order_.begin(), order_.end());
  std::vector<TileRun> runs;
  runs.reserve(entries_.size());
  for (const auto& [columns, i] : order_) {
    auto& [run, tiles] = entries_[i];
    run.first_tile = tiles_;
    run.first_record = records_;
    run.first_counter = counters_;
    tiles_ += tiles.count();
    records_ += tiles.records();
    counters_ += tiles.counters();
    runs.push_back(run);
  }
  if (!runs.empty()) first_run_ = runs.front();
  runs_at_ = blob.Append(absl::MakeConstSpan(runs));
}

}  // namespace attnd::cuda
