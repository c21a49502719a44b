#ifndef ATTND_KERNELS_CPU_TILE_H_
#define ATTND_KERNELS_CPU_TILE_H_

// How the kernels cut attention into tiles. Every pass has a lane side, whose
// tokens lie across the vector lanes and whose results stay in the core's
// cache, and a stream side, whose tokens come by in tiles:
//
//   forward    lanes are rows of Q, K and V stream by
//   backward   lanes are tokens of K and V, Q and dO stream by
//
// A tile of scores is [stream, lanes], so forward's softmax runs down its
// columns, one query to a lane, and no product ever needs a transposed tile.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/mask.h"

namespace attnd::cpu {

// Tokens of the lane side and of the stream side at a time, at most. With
// head_dim 128 forward's lane side (104 KiB each of Q and the accumulator), a
// tile of scores (52 KiB) and one of K and of V (36 KiB each) stay in an L2
// cache of 512 KiB; a register block's panels stay in the L1 cache.
inline constexpr int64_t kMaxLaneTokens = 192;
inline constexpr int64_t kTileTokens = 64;

// Floats from one row of a tile to the next: whole cache lines, and an odd
// number of them, so that columns spread over all sets of the L1 cache.
constexpr int64_t TileStride(int64_t columns) {
  const int64_t lines = (columns + 15) / 16;
  return 16 * (lines | 1);
}

// Tokens [first, first + count) of one segment, at `offset` in a tile or block.
struct Piece {
  int64_t segment = 0;
  int64_t first = 0;
  int64_t offset = 0;
  int64_t count = 0;
};

// One sequence of a problem: what its kernels ask about lengths and masks.
class Sequence {
 public:
  void Reset(const Problem& problem, int64_t b);

  const Problem& problem() const { return problem_; }
  int64_t b() const { return b_; }
  int64_t q_len() const { return q_len_; }
  int64_t segments() const { return static_cast<int64_t>(rows_.size()); }
  const RowIntervals& rows(int64_t segment) const { return rows_[segment]; }
  const KvSegment& kv(int64_t segment) const { return problem_.kv[segment]; }
  // The column of the bias where the segment begins.
  int64_t bias_column(int64_t segment) const { return bias_columns_[segment]; }

  // Where the piece begins among the sequence's own tokens of all segments.
  int64_t Column(const Piece& piece) const {
    return own_columns_[piece.segment] + piece.first;
  }

  // Columns seen by any of rows [first, last]: the work of a block of rows.
  int64_t Columns(int64_t first, int64_t last) const;
  // Rows that see any of the pieces' tokens, and those between them.
  Interval RowsThatSee(const std::vector<Piece>& pieces) const;
  // Whether any of rows [first, last] does not see all of the piece.
  bool Masks(const Piece& piece, int64_t first, int64_t last) const {
    const Interval all = rows_[piece.segment].AllRows(first, last);
    return all.lo > piece.first || all.hi < piece.first + piece.count;
  }
  // Columns [first, first + count) of all segments' own tokens in a row.
  void Pieces(int64_t first, int64_t count, std::vector<Piece>* pieces) const;

 private:
  Problem problem_;  // with q_start resolved
  int64_t b_ = 0;
  int64_t q_len_ = 0;
  std::vector<RowIntervals> rows_;
  std::vector<int64_t> bias_columns_;
  std::vector<int64_t> own_columns_;  // where each segment's tokens begin
};

// Walks the columns that rows [first, last] see, a tile at a time: of those, in
// order, the ones in `columns`.
class TileWalk {
 public:
  TileWalk(const Sequence& sequence, int64_t first_row, int64_t last_row,
           Interval columns)
      : sequence_(sequence),
        first_(first_row),
        last_(last_row),
        skip_(columns.lo),
        wanted_(columns.size()) {}

  // Fills `pieces` with at most kTileTokens tokens and returns their number;
  // 0 at the end.
  int64_t Next(std::vector<Piece>* pieces);

 private:
  const Sequence& sequence_;
  const int64_t first_, last_;
  int64_t skip_, wanted_;  // columns yet to pass over, and then to give
  int64_t segment_ = -1;
  Interval left_;  // of the current segment
};

// A worker's memory, reused from task to task and never cleared. Pages that no
// task reaches are never touched, so small heads take little of it.
class Scratch {
 public:
  // Enough for any task of the largest heads.
  static constexpr int64_t kCapacity = 384 << 10;  // floats

  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // False when there was no memory; then nothing else may be called.
  bool ok() const { return memory_ != nullptr; }

  // Gives everything taken back.
  void Begin() { used_ = 0; }
  // Aligned to 64 bytes; undefined contents.
  float* Take(int64_t floats);
  // Taken since Begin, in floats.
  int64_t used() const { return used_; }

  // Kept between tasks for their capacity.
  Sequence sequence;
  std::vector<Piece> pieces;       // of the current tile or block
  std::vector<Piece> next_pieces;  // of the one after it
  std::vector<Interval> intervals;

 private:
  float* memory_ = nullptr;
  int64_t used_ = 0;
};

template <typename Void>
auto* RowAt(const BasicTensorView<Void>& view, int64_t b, int64_t token,
            int64_t head) {
  using Byte =
      std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  return static_cast<Byte*>(view.data) +
         SizeOf(view.dtype) *
             (b * view.batch_stride + token * view.token_stride +
              head * view.head_stride);
}

// Whether any head's rows are a tile where they lie, as good as packed: f32,
// aligned, one right after the other.
inline bool LiesAsTile(const ConstTensorView& view, int64_t dim) {
  constexpr int64_t kLine = 64;  // bytes
  constexpr int64_t kFloats = kLine / sizeof(float);
  return view.dtype == DType::kF32 && view.token_stride == dim &&
         dim % kFloats == 0 && view.batch_stride % kFloats == 0 &&
         view.head_stride % kFloats == 0 &&
         reinterpret_cast<uintptr_t>(view.data) % kLine == 0;
}

template <typename Float>
Float* RowAt(const BasicRowView<Float>& view, int64_t b, int64_t head) {
  return view.data + b * view.batch_stride + head * view.head_stride;
}

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_TILE_H_
