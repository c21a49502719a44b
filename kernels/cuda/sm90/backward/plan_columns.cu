// A kernel that writes down what there is to know of every block of columns of
// a launch, for the kernel after it, whose producers have no registers to find
// it out.

#include <cstdint>

#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/sm90/backward/tile.cuh"
#include "kernels/cuda/sm90/kernels.h"
#include "kernels/cuda/tile/column_order.h"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/score.cuh"
#include "kernels/cuda/tile/visits.h"

namespace attnd::cuda::sm90 {
namespace {

constexpr int kThreads = 32;

// Where a block of columns lies: in which segment, and which of its blocks.
struct SegmentPlace {
  int segment;
  int block;
};
// The place of block `n` of all segments' blocks, of `cols` columns each.
__device__ SegmentPlace SegmentPlaceOf(const Sequence& sequence, int64_t n,
                                       int64_t cols) {
  int segment = 0;
  while (true) {
    const int64_t blocks = (sequence.segment(segment).len + cols - 1) / cols;
    if (n < blocks) return {segment, static_cast<int>(n)};
    n -= blocks;
    ++segment;
  }
}

// The blocks of columns of all segments that the sequence has.
__device__ int64_t BlocksOf(const Sequence& sequence, int64_t cols) {
  int64_t blocks = 0;
  for (int n = 0; n < sequence.problem->num_segments; ++n) {
    blocks += (sequence.Len(n) + cols - 1) / cols;
  }
  return blocks;
}

// The `cols` columns of a segment from `first` on.
__device__ Columns ColumnsFrom(const Sequence& sequence, int segment, int first,
                               int cols) {
  const auto within = [&](int64_t len) {
    return static_cast<int>(min(max(len - first, int64_t{0}), int64_t{cols}));
  };
  return {first, within(sequence.Len(segment)),
          within(sequence.segment(segment).len)};
}

__device__ void PutTensors(const DeviceProblem& p, const DeviceGradients& g,
                           const Sequence& sequence, int segment,
                           ColumnBlock& block) {
  const DeviceSegment& from = sequence.segment(segment);
  const auto& gradients =
      At<DeviceSegmentGradients>(sequence.blob, g.segments)[segment];
  block.q = p.q;
  block.d_o = g.d_o;
  block.k = from.k;
  block.v = from.v;
  block.d_k = gradients.dk;
  block.d_v = gradients.dv;
  block.d_k_before = gradients.dk_before;
  block.d_v_before = gradients.dv_before;
  block.head_dim = p.head_dim;
  block.value_dim = p.value_dim;
}

__device__ void PutScratch(const LaunchParams& params, const DeviceProblem& p,
                           const DeviceGradients& g, int64_t b, int segment,
                           bool columns_go_up, ColumnBlock& block) {
  float* scratch = params.scratch;
  auto* words = reinterpret_cast<uint32_t*>(scratch);
  block.lse = scratch + g.lse_at;
  block.delta = scratch + g.delta_at;
  block.natural_lse = scratch + g.natural_lse_at;
  block.sums = scratch + g.dq_at;
  block.turns = words + g.turns_at;
  block.turn_offsets =
      words + g.turn_offsets_at + (columns_go_up ? TurnWords(p, g) : 0) +
      (b * p.num_segments + segment) * g.padded_rows / kTurnRows;
  block.huge = words + g.huge_at;
  block.padded_rows = static_cast<int>(g.padded_rows);
  block.first_padded_head = static_cast<int>(b * p.q_heads);
}

// Writes which blocks of rows see the `cols` columns from `first` on: these are
// the cluster's, all blocks of which visit the same rows.
__device__ void PutRows(const Sequence& sequence, int segment, int64_t first,
                        int cols, int rows, bool rows_go_down,
                        ColumnBlock& block) {
  block.intervals = sequence.Intervals(segment);
  const Interval visited = RowBlocksOf(block.intervals, first, cols, rows);
  const Interval clear =
      RowBlocksWithoutMask(block.intervals, first, cols, rows);
  block.begin = static_cast<int>(visited.lo);
  block.end = static_cast<int>(visited.hi);
  block.walk_begin = rows_go_down ? block.end - 1 : block.begin;
  block.walk_end = rows_go_down ? block.begin - 1 : block.end;
  block.walk_step = rows_go_down ? -1 : 1;
  block.clear_begin = static_cast<int>(clear.lo);
  block.clear_end = static_cast<int>(clear.hi);
  block.q_len = static_cast<int>(sequence.q_len);
  block.stored_rows = static_cast<int>(sequence.problem->q_len);
}

// Writes zeros, also between fields, as the copy engine will read all of it.
// All lanes of the warp call it.
__device__ void Clear(ColumnBlock* blocks, int count) {
  static_assert(sizeof(ColumnBlock) % sizeof(uint4) == 0);
  auto* to = reinterpret_cast<uint4*>(blocks);
  const int words = count * static_cast<int>(sizeof(ColumnBlock) / sizeof(*to));
  for (int i = threadIdx.x; i < words; i += kThreads) to[i] = {};
  __syncwarp();
}

// A block of threads, a warp, plans one tile: thread n writes the ColumnBlock
// of the nth block of the cluster that will have the tile.
__global__ void __launch_bounds__(kThreads)
    PlanColumns(const __grid_constant__ LaunchParams params) {
  __shared__ TileDescription description;
  const int64_t tile = params.first_tile + blockIdx.x;
  const OpenTile open = FindTile<kThreads>(params, tile, description);
  const std::byte* blob = BlobOf(params);
  const DeviceProblem& p = *open.problem;
  const auto& g = *At<DeviceGradients>(blob, open.gradients);
  const int cluster = g.cluster, rank = threadIdx.x;
  ColumnBlock* const blocks = PlansOf(params) + tile * cluster;
  Clear(blocks, cluster);
  if (rank >= cluster) return;
  const auto kv_heads = static_cast<uint32_t>(p.kv_heads);
  const ColumnPlace place =
      PlaceOf({static_cast<uint32_t>(p.batch) * kv_heads, open.row_blocks,
               open.heads_together, open.chunk_blocks},
              open.index);
  const Quotient head = Divide(place.head, kv_heads);
  const Sequence sequence = open.sequence(blob, head.quotient);
  // A head's first columns, which most rows see if the mask is causal, come
  // first; where turns are taken, in every other head.
  const bool columns_go_up =
      !g.deterministic ||
      ColumnsGoUp(g.first_kv_head + head.remainder, g.whole_kv_heads,
                  BlocksOf(sequence, g.turn_cols), cluster);
  const auto [segment, n] = SegmentPlaceOf(
      sequence, columns_go_up ? place.block : open.row_blocks - 1 - place.block,
      g.turn_cols);
  const int cols = g.turn_cols / cluster, first = n * g.turn_cols;
  ColumnBlock& block = blocks[rank];
  PutTensors(p, g, sequence, segment, block);
  PutScratch(params, p, g, sequence.b, segment, columns_go_up, block);
  PutRows(sequence, segment, first, g.turn_cols, g.turn_rows,
          g.deterministic && columns_go_up, block);
  block.columns = ColumnsFrom(sequence, segment, first + rank * cols, cols);
  block.other =
      ColumnsFrom(sequence, segment, first + (cluster - 1 - rank) * cols, cols);
  block.maps = open.maps;
  block.b = static_cast<int>(sequence.b);
  block.kv_head = static_cast<int>(head.remainder);
  block.first_head = static_cast<int>(head.remainder * p.group);
  block.group = static_cast<int>(p.group);
  block.segment = segment;
  block.scale = p.scale;
  block.factor = p.scale * kLog2e;
}

}  // namespace

const Kernel& PlanColumnsKernel() {
  static const Kernel kernel = {
      .name = "cuda/sm90/plan_columns",
      .function = reinterpret_cast<const void*>(&PlanColumns),
      .threads = kThreads};
  return kernel;
}

}  // namespace attnd::cuda::sm90
