#ifndef ATTND_KERNELS_CUDA_TILE_COLUMN_ORDER_H_
#define ATTND_KERNELS_CUDA_TILE_COLUMN_ORDER_H_

// The order in which Hopper's blocks of threads take the blocks of columns of
// backward's K/V heads. sm90/backward/README.md says why it is this one.

#include <cstdint>

namespace attnd::cuda {

// How many heads of `blocks` blocks of columns `multiprocessors` can begin with
// together; one at least.
constexpr int64_t HeadsAtOnce(int64_t blocks, int64_t multiprocessors) {
  return blocks < multiprocessors ? multiprocessors / (blocks < 1 ? 1 : blocks)
                                  : 1;
}

// Whether a K/V head's columns go up, its first block first, where blocks take
// turns (turns.cuh): those of some heads go down, of as many after them they go
// up, and so on; of a last head that is left over they go up, if it has more
// blocks than begin together. `kv_head` is one of `kv_heads` of the sequence,
// whose heads have `blocks` blocks. All this depends on nothing but the
// sequence and the kernel, so that dQ has the same bits on every GPU.
constexpr bool ColumnsGoUp(int64_t kv_head, int64_t kv_heads, int64_t blocks,
                           int cluster) {
  const int64_t multiprocessors = 128 / cluster;  // about as many as there are
  if (kv_head + 1 == kv_heads && blocks > multiprocessors) return true;
  return kv_head / HeadsAtOnce(blocks, multiprocessors) % 2 != 0;
}

// How a problem's tiles are counted: section after section of heads_together
// heads, of which the last may have fewer. A section's blocks come in turn, one
// of each head; or, if chunk_blocks is not 0, chunk by chunk of so many blocks,
// one of each head. Sections with chunks have two heads.
struct ColumnOrder {
  uint32_t heads = 0, blocks = 0;  // of all sequences; of each head
  uint32_t heads_together = 1, chunk_blocks = 0;
};

// The order where blocks take turns: as many heads together as
// `multiprocessors` can begin with, or, if the cache does not keep the rows of
// a head that has more blocks than that, two in chunks of so many.
constexpr ColumnOrder OrderInTurns(uint32_t heads, uint32_t blocks,
                                   uint32_t multiprocessors,
                                   bool rows_are_cached) {
  if (blocks > multiprocessors && !rows_are_cached) {
    return {heads, blocks, 2, multiprocessors};
  }
  return {heads, blocks,
          static_cast<uint32_t>(HeadsAtOnce(blocks, multiprocessors))};
}

// Which K/V head a tile is of, of all sequences' heads, and which of the head's
// blocks it is, in the order in which they come.
struct ColumnPlace {
  uint32_t head, block;
};
constexpr ColumnPlace PlaceOf(const ColumnOrder& order, uint32_t index) {
  const uint32_t first =
      index / (order.heads_together * order.blocks) * order.heads_together;
  const uint32_t left = order.heads - first;
  const uint32_t width =
      order.heads_together < left ? order.heads_together : left;
  index -= first * order.blocks;
  if (order.chunk_blocks == 0 || width == 1) {
    return {first + index % width, index / width};
  }
  // What does not fill a chunk comes first of the one head, last of the other.
  const uint32_t chunk = order.chunk_blocks;
  const uint32_t rest = (order.blocks - 1) % chunk + 1;
  if (index < rest) return {first, index};
  index -= rest;
  const uint32_t block = index / (2 * chunk) * chunk + index % chunk;
  const bool is_second = index / chunk % 2 == 0;
  return is_second ? ColumnPlace{first + 1, block}
                   : ColumnPlace{first, rest + block};
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_COLUMN_ORDER_H_
