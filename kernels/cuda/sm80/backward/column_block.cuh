#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_COLUMN_BLOCK_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_COLUMN_BLOCK_CUH_

// Which columns a block of threads of backward owns, which rows visit it, what
// it knows about them, and when it may add to their dQ.

#include <cstdint>

#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/turns.cuh"
#include "kernels/cuda/tile/visits.h"

namespace attnd::cuda::sm80 {

// The tile of this block of threads, for all its threads; `memory` is in shared
// memory. Where blocks take turns at dQ, tiles are given out in the order in
// which blocks begin, so that nobody waits for a block that has not begun.
__device__ inline int64_t TakeTile(const LaunchParams& params,
                                   uint32_t& memory) {
  if (!params.in_turns) return params.first_tile + blockIdx.x;
  if (threadIdx.x == 0) {
    memory = ptx::AtomicIncrement(params.counters, params.num_tiles - 1);
  }
  __syncthreads();  // thread 0 has written the tile
  return params.first_tile + memory;
}

// A block of columns of a segment, of one K/V head of one sequence.
struct ColumnBlock {
  Sequence sequence;
  int64_t kv_head;
  int segment;
  int64_t index;  // the block's number in the segment
  int64_t first_column;
  int valid;   // columns of the block that the sequence has
  int stored;  // columns of the block that the segment, so dK and dV, has
  RowIntervals intervals;  // what each row sees of the segment
  Interval visited;   // blocks of rows, of each q head, that visit this block
  Interval unmasked;  // those of them whose valid rows see all the columns
};

// The block of columns that a tile is. A head's blocks follow one another, its
// first columns first, as under a causal mask most rows see those. Where blocks
// take turns, the last columns come first.
template <int kRows, int kCols>
__device__ ColumnBlock MakeColumnBlock(const LaunchParams& params,
                                       const OpenTile& tile) {
  const DeviceProblem& p = *tile.problem;
  const Quotient place = Divide(tile.index, tile.row_blocks);
  const Quotient head =
      Divide(place.quotient, static_cast<uint32_t>(p.kv_heads));
  ColumnBlock block;
  block.sequence = tile.sequence(BlobOf(params), head.quotient);
  block.kv_head = head.remainder;
  block.index =
      params.in_turns ? tile.row_blocks - 1 - place.remainder : place.remainder;
  block.segment = 0;
  while (true) {
    const int64_t blocks =
        (tile.segments[block.segment].len + kCols - 1) / kCols;
    if (block.index < blocks) break;
    block.index -= blocks;
    ++block.segment;
  }
  const auto within = [&](int64_t columns) {
    return static_cast<int>(
        min(max(columns - block.first_column, int64_t{0}), int64_t{kCols}));
  };
  block.first_column = block.index * kCols;
  block.stored = within(tile.segments[block.segment].len);
  block.intervals = block.sequence.Intervals(block.segment);
  block.valid = within(block.intervals.columns);
  block.visited =
      RowBlocksOf(block.intervals, block.first_column, kCols, kRows);
  block.unmasked =
      RowBlocksWithoutMask(block.intervals, block.first_column, kCols, kRows);
  return block;
}

// A block of rows that visits the block of columns.
struct Visit {
  uint32_t head;  // q head, among those that share the K/V head
  uint32_t rows;  // number of the block of rows in its sequence
};
__device__ inline Visit FirstVisit(const ColumnBlock& block) {
  return {0, static_cast<uint32_t>(block.visited.lo)};
}
// Moves on to the next visit; false at the end.
__device__ inline bool Next(const ColumnBlock& block, Visit& visit) {
  if (++visit.rows == static_cast<uint32_t>(block.visited.hi)) {
    visit.rows = static_cast<uint32_t>(block.visited.lo);
    ++visit.head;
  }
  return visit.head < block.sequence.problem->group;
}
// The visit's number, from 0 on.
__device__ inline uint32_t StepOf(const ColumnBlock& block,
                                  const Visit& visit) {
  return visit.head * static_cast<uint32_t>(block.visited.size()) + visit.rows -
         static_cast<uint32_t>(block.visited.lo);
}

__device__ inline bool IsMasked(const ColumnBlock& block, const Visit& visit) {
  return visit.rows < block.unmasked.lo || visit.rows >= block.unmasked.hi;
}
// Columns [x, y) of the block that a row of the sequence sees, counted from the
// block's first.
template <int kCols>
__device__ ushort2 Seen(const ColumnBlock& block, int64_t row) {
  if (row >= block.intervals.rows) return make_ushort2(0, 0);
  const Interval seen = block.intervals.Row(row);
  const auto within = [&](int64_t column) {
    return static_cast<unsigned short>(
        min(max(column - block.first_column, int64_t{0}), int64_t{kCols}));
  };
  return make_ushort2(within(seen.lo), within(seen.hi));
}

// Q or dO of the q heads that share a K/V head, [group, q_len, dim] of the
// sequence.
template <class T>
struct HeadRows {
  const T* data;
  int64_t head_stride, token_stride;

  __device__ HeadRows() {}
  __device__ HeadRows(const ConstTensorView& view, const ColumnBlock& block)
      : data(static_cast<const T*>(view.data) +
             block.sequence.b * view.batch_stride +
             block.kv_head * block.sequence.problem->group * view.head_stride),
        head_stride(view.head_stride),
        token_stride(view.token_stride) {}

  __device__ const T* Row(uint32_t head, int64_t row) const {
    return data + head * head_stride + row * token_stride;
  }
};

// K or V of the block, [valid, dim].
template <class T>
__device__ const T* ColumnRows(const ConstTensorView& view,
                               const ColumnBlock& block) {
  return static_cast<const T*>(view.data) +
         block.sequence.b * view.batch_stride +
         block.kv_head * view.head_stride +
         block.first_column * view.token_stride;
}
// dK or dV of the block, [stored, dim].
template <class Out>
__device__ Out* ColumnRows(const TensorView& view, const ColumnBlock& block) {
  return static_cast<Out*>(view.data) + block.sequence.b * view.batch_stride +
         block.kv_head * view.head_stride +
         block.first_column * view.token_stride;
}

// The launch's scratch for the rows of the q heads that share the block's K/V
// head: PrepareRows has written it, FinishDq reads dq. `group` is these heads.
struct RowScratch {
  const float* lse;    // [group, padded_rows], in the kernel's units
  const float* delta;  // [group, padded_rows], (E11) less the gradient of LSE
  // [group, padded_rows]. Only 16-bit inputs have it, and where DeviceGradients
  // says so.
  const float* natural_lse;
  float* dq;  // [group, padded_rows, dq_dim], the sums; null: dQ is not wanted
  // [group, padded_rows / kTurnRows], counters of turns that have ended; null:
  // blocks add in any order.
  uint32_t* turns;
  // [padded_rows / kTurnRows], TurnsUntil of the block's segment.
  const uint32_t* turns_until;
  int64_t padded_rows;  // rows of a head, padded to whole tiles

  __device__ RowScratch() {}
  __device__ RowScratch(const LaunchParams& params, const DeviceGradients& g,
                        const ColumnBlock& block)
      : padded_rows(g.padded_rows) {
    const DeviceProblem& p = *block.sequence.problem;
    const int64_t rows =
        (block.sequence.b * p.q_heads + block.kv_head * p.group) * padded_rows;
    const bool wanted = g.dq.data != nullptr;
    lse = params.scratch + g.lse_at + rows;
    delta = params.scratch + g.delta_at + rows;
    natural_lse = params.scratch + g.natural_lse_at + rows;
    dq = wanted ? params.scratch + g.dq_at + rows * g.dq_dim : nullptr;
    turns = wanted && params.in_turns
                ? reinterpret_cast<uint32_t*>(params.scratch) + g.turns_at +
                      rows / kTurnRows
                : nullptr;
    turns_until = reinterpret_cast<const uint32_t*>(params.scratch) +
                  g.turn_offsets_at +
                  (block.sequence.b * p.num_segments + block.segment) *
                      padded_rows / kTurnRows;
  }

  // Where the rows of a visit begin among the padded rows of the group's heads.
  template <int kRows>
  __device__ int64_t RowOf(const Visit& visit) const {
    return visit.head * padded_rows + int64_t{visit.rows} * kRows;
  }
};

// The block's turn at the rows of a visit, see turns.cuh.
struct Turn {
  uint32_t* counter = nullptr;  // in device memory; null: there is none
  uint32_t number = 0;          // turns that must have ended before
};

template <int kRows>
__device__ Turn MakeTurn(const ColumnBlock& block, const RowScratch& scratch,
                         const Visit& visit) {
  static_assert(kRows % kTurnRows == 0);
  const int64_t until =
      scratch.turns_until[int64_t{visit.rows} * kRows / kTurnRows];
  return {scratch.turns + scratch.RowOf<kRows>(visit) / kTurnRows,
          static_cast<uint32_t>(until - 1 - block.index)};
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_COLUMN_BLOCK_CUH_
