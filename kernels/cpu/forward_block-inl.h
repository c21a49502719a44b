// A block of many queries in forward. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_FORWARD_BLOCK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_FORWARD_BLOCK_INL_H_
#undef ATTND_KERNELS_CPU_FORWARD_BLOCK_INL_H_
#else
#define ATTND_KERNELS_CPU_FORWARD_BLOCK_INL_H_
#endif

#include <cstdint>
#include <optional>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/prefetcher.h"
#include "kernels/cpu/query_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {

// K and V of all of a sequence's own tokens, packed for whoever needs them.
template <class Words>
struct PackedKv {
  Tile k;  // words of [tokens, head_dim]
  Tile v;  // words of [tokens, value_dim] along the tokens

  PackedKv(const Problem& p, int64_t kv_len, float* memory)
      : k{memory, TileStride(WordsOf<Words>(p.head_dim))},
        v{k.row(kv_len), TileStride(p.value_dim)} {}
};

// Memory for a tile, which blocks that take turns share.
struct ForwardTiles {
  Tile k;          // words of [stream, head_dim]
  Tile v;          // words of [stream, value_dim] along the tokens
  Tile scores;     // [stream, lanes], then P, words along the tokens
  Tile temporary;  // of the bias

  template <class Words>
  static ForwardTiles Take(const Problem& p, int64_t lanes, Scratch& scratch) {
    const int64_t width = RoundUpToLanes(lanes);
    ForwardTiles t;
    t.k = TakeTile(scratch, kTileTokens, WordsOf<Words>(p.head_dim));
    t.v = TakeTile(scratch, WordsOf<Words>(kTileTokens), p.value_dim);
    t.scores = TakeTile(scratch, kTileTokens, width);
    if (p.bias) t.temporary = TakeTile(scratch, kTileTokens, width);
    return t;
  }
};

// Queries whose K and V stream by in packed tiles.
template <class Words>
struct ForwardBlock : QueryBlock {
  ForwardBlock(const ForwardArgs& args, const FlashTask& task,
               const ForwardTiles& tiles, Scratch& scratch)
      : QueryBlock(args, task, tiles.scores, tiles.temporary, scratch),
        q(TakeTile(scratch, WordsOf<Words>(p.head_dim) + 3, width)),
        k(tiles.k),
        v(tiles.v) {
    PackColumns<Words>(lanes.lanes(), p.head_dim, p.q.dtype, lanes.RowsOf(p.q),
                       q);
  }

  auto RowsOf(ConstTensorView KvSegment::*which) const {
    return KvRows(scratch.sequence, scratch.pieces, which, kv_head);
  }
  std::optional<ConstTile> InPlace(ConstTensorView KvSegment::*which,
                                   int64_t dim) const {
    return TileInPlace<Words>(scratch.sequence, scratch.pieces, which, kv_head,
                              dim);
  }

  // The column of all the sequence's own where the tile begins, if it is
  // packed like that.
  std::optional<int64_t> PackedColumn() const {
    if (task.packed == nullptr) return std::nullopt;
    const int64_t column = scratch.sequence.Column(scratch.pieces.front());
    for (const Piece& piece : scratch.pieces) {
      if (scratch.sequence.Column(piece) != column + piece.offset) {
        return std::nullopt;
      }
    }
    if (column % Words::kElements != 0) return std::nullopt;
    return column;
  }
  PackedKv<Words> Packed() const {
    return PackedKv<Words>(p, KvLen(p, task.b), task.packed);
  }

  // Words of the tile's [tokens, head_dim], and of [tokens, value_dim] along
  // the tokens.
  ConstTile KTile(int64_t tokens) const {
    if (const auto column = PackedColumn()) {
      return {Packed().k.row(*column), Packed().k.stride};
    }
    if (const auto tile = InPlace(&KvSegment::k, p.head_dim)) return *tile;
    PackRows<Words>(tokens, p.head_dim, p.dtype(), RowsOf(&KvSegment::k), k);
    return k;
  }
  ConstTile VTile(int64_t tokens) const {
    if (const auto column = PackedColumn()) {
      return {Packed().v.row(*column / Words::kElements), Packed().v.stride};
    }
    if (const auto tile = InPlace(&KvSegment::v, p.value_dim)) return *tile;
    PackAlongTokens<Words>(tokens, p.value_dim, p.dtype(),
                           RowsOf(&KvSegment::v), v);
    return v;
  }

  // (E1) for columns [first, first + count) of the tile.
  void AddScores(ConstTile k, int64_t tokens, int64_t first, int64_t count,
                 Prefetcher& prefetch) const {
    Gemm<Words, AOrder::kRowMajor>(
        tokens, count, WordsOf<Words>(p.head_dim), k, q.from(first),
        scores.from(first),
        {.factor = p.scale, .saturate = true, .prefetch = &prefetch});
  }

  // Adds the tokens of scratch.pieces to O and the softmax's state.
  void AddTile(int64_t tokens, bool first, Prefetcher& prefetch) const {
    const float* row_scale = first ? nullptr : state.rescale;
    const ConstTile k = KTile(tokens);
    if (p.softcap || p.bias || lanes.Masks()) {
      AddScores(k, tokens, 0, width, prefetch);
      ChangeScores(tokens);
      UpdateSoftmax<Words>(tokens, 0, width, scores, state);
    } else {
      // The softmax of a panel finds its scores in the L1 cache.
      ForEachPanel(width, [&](int64_t column, int64_t vectors) {
        AddScores(k, tokens, column, vectors * kLanes, prefetch);
        UpdateSoftmax<Words>(tokens, column, vectors * kLanes, scores, state);
      });
    }
    if (!args.o) return;
    Gemm<Words, AOrder::kColumnMajor>(  // (E9)
        lanes.lanes(), RoundUpToLanes(p.value_dim), WordsOf<Words>(tokens),
        scores, VTile(tokens), acc,
        {.row_scale = row_scale, .prefetch = &prefetch});
  }

  // Of a piece's rows one by one, unless they follow one another.
  void PrefetchRows(const ConstTensorView& view, const Piece& piece,
                    int64_t dim, Prefetcher& prefetch) const {
    const bool one = view.token_stride == dim;
    const int64_t rows = one ? 1 : piece.count;
    const int64_t bytes = (one ? piece.count : 1) * dim * SizeOf(view.dtype);
    for (int64_t t = 0; t < rows; ++t) {
      prefetch.Add(RowAt(view, task.b, piece.first + t, kv_head), bytes);
    }
  }

  // Has the rows of `pieces` fetched during the next AddTile.
  void Prefetch(const std::vector<Piece>& pieces, Prefetcher& prefetch) const {
    prefetch.Clear();
    if (pieces.empty()) return;
    if (task.packed != nullptr) {
      const int64_t first = scratch.sequence.Column(pieces.front());
      const int64_t tokens = pieces.back().offset + pieces.back().count;
      prefetch.Add(Packed().k.row(first),
                   tokens * Packed().k.stride * sizeof(float));
      prefetch.Add(Packed().v.row(first / Words::kElements),
                   WordsOf<Words>(tokens) * Packed().v.stride * sizeof(float));
    } else {
      for (const Piece& piece : pieces) {
        const KvSegment& s = scratch.sequence.kv(piece.segment);
        PrefetchRows(s.k, piece, p.head_dim, prefetch);
        if (args.o) PrefetchRows(s.v, piece, p.value_dim, prefetch);
      }
    }
    prefetch.SpreadOver(GemmBlocks(kTileTokens, width) +
                        GemmBlocks(lanes.lanes(), RoundUpToLanes(p.value_dim)));
  }

  const Tile q;     // words of [head_dim, lanes]
  const Tile k, v;  // of the blocks that take turns
};

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_FORWARD_BLOCK_INL_H_
