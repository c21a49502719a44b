#ifndef ATTND_KERNELS_CUDA_SM80_DECODE_TILE_CUH_
#define ATTND_KERNELS_CUDA_SM80_DECODE_TILE_CUH_

// Which rows and which part of the columns a block of threads decodes.

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/sm80/column_walk.cuh"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/query.cuh"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda::sm80 {

// Where a row's results go. Null means that they are not wanted.
struct OutputPlace {
  std::byte* o;  // [value_dim], of O's type
  float* lse;
};

// What a block of threads decodes: rows [first, first + stored) of a K/V head
// of a sequence (query.cuh numbers them). The first `valid` of them are queries
// that the sequence has, the others padding up to the problem's q_len.
struct DecodeTile {
  RowBlock block;  // the valid rows, and the part of the columns
  uint32_t first;
  int valid, stored;
  int part, parts;       // which part of the columns, of how many
  int record_stride;     // records from a row's part 0 to the next row's
  int64_t first_record;  // index of row 0's record of part 0, in the scratch
  int64_t counter;  // index of the counter of these rows' parts that are done

  // The token of Q that row r is, and its q head.
  __device__ int64_t Row(int r) const { return Place(r).quotient; }
  __device__ int64_t Head(int r) const {
    return block.kv_head * block.sequence.problem->group + Place(r).remainder;
  }
  // The tile's rows of Q, whose elements are T.
  template <class T>
  __device__ QueryRows<T> Rows() const {
    const DeviceProblem& p = *block.sequence.problem;
    return QueryRows<T>(p.q, block.sequence.b, block.kv_head,
                        static_cast<uint32_t>(p.group), first);
  }
  __device__ OutputPlace Output(int r) const {
    const DeviceProblem& p = *block.sequence.problem;
    const int64_t b = block.sequence.b, row = Row(r), head = Head(r);
    OutputPlace place{};
    if (p.o.data != nullptr) {
      const int64_t at = b * p.o.batch_stride + head * p.o.head_stride +
                         row * p.o.token_stride;
      place.o = static_cast<std::byte*>(p.o.data) +
                at * (p.o.dtype == DType::kF32 ? 4 : 2);
    }
    if (p.lse.data != nullptr) {
      place.lse =
          p.lse.data + b * p.lse.batch_stride + head * p.lse.head_stride + row;
    }
    return place;
  }

 private:
  __device__ Quotient Place(int r) const {
    return Divide(first + r,
                  static_cast<uint32_t>(block.sequence.problem->group));
  }
};

// Which head, rows, part and sequence the tile `index` of a run is. Heads run
// fastest: blocks side by side then read whole tokens of K and V.
struct DecodePlace {
  uint32_t kv_head, row_block, part, b;
};
__device__ inline DecodePlace PlaceOf(uint32_t index, uint32_t kv_heads,
                                      uint32_t row_blocks, uint32_t parts) {
  const Quotient head = Divide(index, kv_heads);
  const Quotient row_block = Divide(head.quotient, row_blocks);
  const Quotient part = Divide(row_block.quotient, parts);
  return {head.remainder, row_block.remainder, part.remainder, part.quotient};
}

// The tile that this block of threads has. Its `stored` is 0 if the sequence is
// prefill's, or too short to have the part.
__device__ inline DecodeTile MakeDecodeTile(const std::byte* blob,
                                            const OpenTile& open) {
  const DeviceProblem& p = *open.problem;
  const DecodePlace place =
      PlaceOf(open.index, static_cast<uint32_t>(p.kv_heads), open.row_blocks,
              open.parts);
  const uint32_t b = place.b;
  const Sequence sequence = open.sequence(blob, b);
  DecodeTile tile{};
  tile.block.sequence = sequence;
  tile.block.kv_head = place.kv_head;
  tile.first = place.row_block * kDecodeTile;
  if (!IsDecode(sequence.q_len)) return tile;
  const auto within = [&](int64_t rows) {
    return static_cast<int>(min(max(rows * p.group - tile.first, int64_t{0}),
                                int64_t{kDecodeTile}));
  };
  tile.valid = within(sequence.q_len);
  tile.part = static_cast<int>(place.part);
  tile.parts = static_cast<int>(tile.valid > 0 ? Parts(sequence.kv_len) : 1);
  if (tile.part < tile.parts) tile.stored = within(min(p.q_len, kDecodeRows));
  const int64_t columns = PartColumns(sequence.kv_len);
  tile.block.first_row = tile.Row(0);
  tile.block.last_row = tile.Row(max(tile.valid - 1, 0));
  tile.block.first_column = tile.part * columns;
  tile.block.end_column =
      min(tile.block.first_column + columns, sequence.kv_len);
  const int64_t row_tile =
      (b * p.kv_heads + place.kv_head) * open.row_blocks + place.row_block;
  tile.record_stride = open.parts;
  tile.first_record =
      open.first_record + row_tile * open.parts * TileRows(p.q_len, p.group);
  tile.counter = open.first_counter + row_tile;
  return tile;
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_DECODE_TILE_CUH_
