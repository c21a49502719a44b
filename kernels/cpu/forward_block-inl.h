// One block of queries in forward. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_FORWARD_BLOCK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_FORWARD_BLOCK_INL_H_
#undef ATTND_KERNELS_CPU_FORWARD_BLOCK_INL_H_
#else
#define ATTND_KERNELS_CPU_FORWARD_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/decode-inl.h"
#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd {
namespace HWY_NAMESPACE {

// O = accumulator / sum (E9), LSE (E7); 0 and -inf for a query that saw
// nothing. What a query's sum becomes is then undefined.
HWY_INLINE void WriteOutput(const ForwardArgs& args, const LaneRows& lanes,
                            const Softmax& state, Tile acc) {
  const F32 d;
  const int64_t b = lanes.b();
  const int64_t dim = args.problem.value_dim;
  if (args.lse) {
    lanes.ForEach([&](int64_t lane, int64_t head, int64_t q_row) {
      const float sum = state.sum[lane];
      RowAt(args.lse, b, head)[q_row] =
          sum == 0 ? -kInf : state.max[lane] + std::log(sum);
    });
  }
  if (!args.o) return;
  for (int64_t i = 0; i < lanes.lanes(); i += kLanes) {
    const Vf sum = hn::Load(d, state.sum + i);
    hn::Store(hn::Div(hn::Set(d, 1.0f), sum), d, state.sum + i);
  }
  lanes.ForEach([&](int64_t lane, int64_t head, int64_t q_row) {
    float* row = acc.row(lane);
    float factor = state.sum[lane];
    if (factor == kInf) {
      std::fill_n(row, dim, 0.0f);
      factor = 1;
    }
    StoreRow(row, factor, dim, args.o.dtype, RowAt(args.o, b, q_row, head));
  });
}

// What a task leaves in the workspace when it is one of several that see
// different columns.
struct Partial {
  Tile acc;  // [lanes, value_dim]
  float* max;
  float* sum;

  Partial(const ForwardArgs& args, const FlashTask& task, int64_t part)
      : acc{task.workspace + part * task.part_floats,
            TileStride(args.problem.value_dim)} {
    const int64_t lanes = task.heads * task.count;
    max = acc.row(lanes);
    sum = max + (lanes + 15) / 16 * 16;
  }
};

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
  bool in_place;
  Tile k;          // words of [stream, head_dim]
  Tile v;          // words of [stream, value_dim] along the tokens
  Tile scores;     // [stream, lanes], then P, words along the tokens
  Tile temporary;  // of the bias

  template <class Words>
  static ForwardTiles Take(const Problem& p, int64_t lanes, Scratch& scratch) {
    ForwardTiles t;
    t.in_place = Words::kElements == 1 && ReadsInPlace(p, lanes);
    if (!t.in_place) {
      t.k = TakeTile(scratch, kTileTokens, WordsOf<Words>(p.head_dim));
      t.v = TakeTile(scratch, WordsOf<Words>(kTileTokens), p.value_dim);
    }
    const int64_t width = RoundUpToLanes(lanes);
    t.scores = TakeTile(scratch, kTileTokens, width);
    if (p.bias) t.temporary = TakeTile(scratch, kTileTokens, width);
    return t;
  }
};

// Queries across the lanes; K and V stream by.
template <class Words>
struct ForwardBlock {
  ForwardBlock(const ForwardArgs& args, const FlashTask& whole,
               const ForwardTiles& tiles, Scratch& scratch)
      : args(args),
        task(whole),
        scratch(scratch),
        p(args.problem),
        kv_head(task.head / p.group()),
        lanes(scratch, task.head, task.heads, task.first, task.count),
        width(RoundUpToLanes(lanes.lanes())),
        in_place(tiles.in_place),
        q(in_place ? TakeTile(scratch, lanes.lanes(), p.head_dim)
                   : TakeTile(scratch, WordsOf<Words>(p.head_dim) + 3, width)),
        k(tiles.k),
        v(tiles.v),
        scores(tiles.scores),
        temporary(tiles.temporary),
        acc(task.parts > 1 ? Partial(args, task, task.part).acc
                           : TakeTile(scratch, lanes.lanes(), p.value_dim)),
        state{scratch.Take(width), scratch.Take(width), scratch.Take(width)} {
    state.Clear(width);
  }

  void PackLanes() const {
    const auto rows = lanes.RowsOf(p.q);
    if (in_place) {
      PackRows<Words>(lanes.lanes(), p.head_dim, p.q.dtype, rows, q);
    } else {
      PackColumns<Words>(lanes.lanes(), p.head_dim, p.q.dtype, rows, q);
    }
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
                 Prefetcher* prefetch) const {
    Gemm<Words, AOrder::kRowMajor>(tokens, count, WordsOf<Words>(p.head_dim), k,
                                   q.from(first), scores.from(first),
                                   {.factor = p.scale, .prefetch = prefetch});
  }

  // (E2), (E21)
  void ChangeScores(int64_t tokens) const {
    SaturateScores(p.scale, tokens, width, scores);
    if (p.softcap) Softcap(*p.softcap, tokens, width, scores, nullptr);
    if (p.bias) lanes.AddBias(scores, temporary, tokens);
    lanes.ApplyMask(scores);
  }

  // Adds the tokens of scratch.pieces to O and the softmax's state.
  void AddTile(int64_t tokens, bool first, Prefetcher& prefetch) const {
    const float* row_scale = first ? nullptr : state.rescale;
    if (in_place) {
      WithElements(p.dtype(), [&](auto from) {
        DotsInPlace<decltype(from)>(scratch, kv_head, lanes.lanes(), width, q,
                                    scores, prefetch);
        ChangeScores(tokens);
        UpdateSoftmax<Words>(tokens, 0, width, scores, state);
        if (!args.o) return;
        AddInPlace<decltype(from)>(scratch, kv_head, lanes.lanes(), scores,
                                   row_scale, acc);
      });
      return;
    }
    const ConstTile k = KTile(tokens);
    if (p.softcap || p.bias || !KeepsRange(p.scale) || lanes.Masks()) {
      AddScores(k, tokens, 0, width, &prefetch);
      ChangeScores(tokens);
      UpdateSoftmax<Words>(tokens, 0, width, scores, state);
    } else {
      // The softmax of a panel finds its scores in the L1 cache.
      ForEachPanel(width, [&](int64_t column, int64_t vectors) {
        AddScores(k, tokens, column, vectors * kLanes, &prefetch);
        UpdateSoftmax<Words>(tokens, column, vectors * kLanes, scores, state);
      });
    }
    if (!args.o) return;
    Gemm<Words, AOrder::kColumnMajor>(  // (E9)
        lanes.lanes(), RoundUpToLanes(p.value_dim), WordsOf<Words>(tokens),
        scores, VTile(tokens), acc,
        {.row_scale = row_scale, .prefetch = &prefetch});
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
        for (int64_t t = piece.first; t < piece.first + piece.count; ++t) {
          prefetch.Add(RowAt(s.k, task.b, t, kv_head),
                       p.head_dim * SizeOf(p.dtype()));
          if (!args.o) continue;
          prefetch.Add(RowAt(s.v, task.b, t, kv_head),
                       p.value_dim * SizeOf(p.dtype()));
        }
      }
    }
    prefetch.SpreadOver(
        in_place ? kTileTokens / 2
                 : GemmBlocks(kTileTokens, width) +
                       GemmBlocks(lanes.lanes(), RoundUpToLanes(p.value_dim)));
  }

  // What all tiles have given.
  void Finish() const {
    if (task.parts == 1) {
      WriteOutput(args, lanes, state, acc);
    } else {
      const Partial partial(args, task, task.part);
      std::copy_n(state.max, lanes.lanes(), partial.max);
      std::copy_n(state.sum, lanes.lanes(), partial.sum);
    }
  }

  const ForwardArgs& args;
  const FlashTask task;
  Scratch& scratch;
  const Problem& p;
  const int64_t kv_head;
  const LaneRows lanes;
  const int64_t width;
  const bool in_place;
  const Tile q;  // words of [head_dim, lanes]; in place [lanes, ..]
  const Tile k, v, scores, temporary;
  const Tile acc;  // [lanes, value_dim]
  const Softmax state;
};

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_FORWARD_BLOCK_INL_H_
