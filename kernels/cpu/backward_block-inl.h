// One block of K and V in backward. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_BACKWARD_BLOCK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_BACKWARD_BLOCK_INL_H_
#undef ATTND_KERNELS_CPU_BACKWARD_BLOCK_INL_H_
#else
#define ATTND_KERNELS_CPU_BACKWARD_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/backward_scores-inl.h"
#include "kernels/cpu/backward_stream-inl.h"
#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/in_place_products-inl.h"
#include "kernels/give_way.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {

// What of K's and V's gradients, and of Q's, a task computes.
struct Wanted {
  bool dq = false, dk = false, dv = false;

  Wanted(const BackwardArgs& args, const std::vector<Piece>& pieces)
      : dq(args.dq) {
    for (const Piece& piece : pieces) {
      const KvSegment& s = args.problem.kv[piece.segment];
      dk = dk || s.dk;
      dv = dv || s.dv;
    }
  }
  bool ds() const { return dq || dk; }
  bool any() const { return ds() || dv; }
};

// Rows of q head `head` from `first` on, in the slab's sum of dQ.
HWY_INLINE Tile SumTile(const Problem& p, const FlashTask& task,
                        const Slab& slab, int64_t head, int64_t first) {
  const int64_t row =
      head % p.group() * slab.rows.size() + first - slab.rows.lo;
  const Tile sums{task.workspace + slab.offset, SlabStride(p)};
  return {sums.row(row), sums.stride};
}

// factor * sum, of `dim` elements, is a token's gradient, to be added to what
// was there before, if anything was.
HWY_INLINE void StoreGradient(const float* sum, float factor, int64_t dim,
                              const ConstTensorView& before,
                              const TensorView& to, int64_t b, int64_t token,
                              int64_t head) {
  void* row = RowAt(to, b, token, head);
  if (!before) return StoreRow(sum, factor, dim, to.dtype, row);
  const F32 d;
  const Vf f = hn::Set(d, factor);
  const int64_t padded = RoundUpToLanes(dim);
  HWY_ALIGN float total[kMaxHeadDim];
  LoadRow(RowAt(before, b, token, head), before.dtype, dim, padded, total);
  for (int64_t i = 0; i < padded; i += kLanes) {
    const Vf own = hn::Load(d, sum + i);
    hn::Store(hn::MulAdd(f, own, hn::Load(d, total + i)), d, total + i);
  }
  StoreRow(total, 1.0f, dim, to.dtype, row);
}

// dQ = scale * sum for rows [first, first + count) of q head `head`.
HWY_INLINE void StoreDq(const BackwardArgs& args, int64_t b, int64_t head,
                        int64_t first, int64_t count, Tile sum) {
  const Problem& p = args.problem;
  for (int64_t r = 0; r < count; ++r) {
    StoreGradient(sum.row(r), p.scale, p.head_dim, args.dq_before, args.dq, b,
                  first + r, head);
  }
}
// dQ of rows that see nothing of what there is.
HWY_INLINE void ClearDq(const BackwardArgs& args, int64_t b, int64_t head,
                        Interval rows) {
  HWY_ALIGN static constexpr float kNothing[kMaxHeadDim] = {};
  for (int64_t row = rows.lo; row < rows.hi; ++row) {
    StoreGradient(kNothing, 1.0f, args.problem.head_dim, args.dq_before,
                  args.dq, b, row, head);
  }
}

// Tokens of K and V across the lanes, those of scratch.pieces; Q and dO stream
// by. All five products of a tile: scores, which are to be forward's bit by
// bit, of ScoreWords, the others of Words.
template <class ScoreWords, class Words>
struct BackwardBlock {
  static constexpr bool kOneKind = ScoreWords::kElements == Words::kElements;
  using RowStream = Stream<ScoreWords, Words>;

  BackwardBlock(const BackwardArgs& args, const FlashTask& task,
                const Slab& slab, int64_t first, int64_t tokens,
                Scratch& scratch)
      : args(args),
        task(task),
        slab(slab),
        first(first),
        first_block(first == slab.columns.lo),
        sums(task.parts > 1 || slab.columns.size() > task.count),
        scratch(scratch),
        p(args.problem),
        want(args, scratch.pieces),
        tokens(tokens),
        width(RoundUpToLanes(tokens)),
        k(TakeTile(scratch, WordsOf<ScoreWords>(p.head_dim) + 3, width)),
        v(TakeTile(scratch, WordsOf<Words>(p.value_dim) + 3, width)),
        k_along(TakeTile(scratch, WordsOf<Words>(tokens), p.head_dim)),
        t(scratch, p, width),
        dk(TakeTile(scratch, tokens, p.head_dim)),
        dv(TakeTile(scratch, tokens, p.value_dim)),
        packed(kOneKind ? task.packed : nullptr),
        own(p, packed ? 0 : kTileTokens,
            scratch.Take(packed ? 0
                                : PackedRowsFloats(p, kTileTokens) *
                                      (kOneKind ? 1 : 2))),
        own_dq(TakeTile(scratch, sums ? 0 : kTileTokens, p.head_dim)),
        few_q(TakeTile(scratch, kMostInPlace, p.head_dim)) {}

  void PackLanes() const {
    const auto rows_of = [&](ConstTensorView KvSegment::*which) {
      return KvRows(scratch.sequence, scratch.pieces, which, task.head);
    };
    const auto k_rows = rows_of(&KvSegment::k);
    PackColumns<ScoreWords>(tokens, p.head_dim, p.dtype(), k_rows, k);
    if (want.ds()) {
      PackColumns<Words>(tokens, p.value_dim, p.dtype(), rows_of(&KvSegment::v),
                         v);
    }
    if (want.dq) {
      PackAlongTokens<Words>(tokens, p.head_dim, p.dtype(), k_rows, k_along);
    }
  }

  // (E1) for columns [column, column + count).
  void AddScores(Tile q, int64_t rows, int64_t column, int64_t count,
                 Prefetcher& prefetch) const {
    Gemm<ScoreWords, AOrder::kRowMajor>(
        rows, count, WordsOf<ScoreWords>(p.head_dim), q, k.from(column),
        t.scores.from(column),
        {.factor = p.scale, .saturate = true, .prefetch = &prefetch});
  }

  // The first row whose scores forward finds by products in place, whose sums
  // have another order: those of the last block, if they are so few.
  int64_t FirstInPlace(int64_t head) const {
    const int64_t q_len = scratch.sequence.q_len();
    const ForwardRows last = LastForwardRows(p, q_len, head);
    return ReadsInPlace(p, last.lanes) ? last.first : q_len;
  }

  // (E1) of rows [first, first + rows) in the same way, `lse` being theirs.
  void DotRows(int64_t head, int64_t first, int64_t rows, const float* lse,
               Tile scores) const {
    const RowRun run = RunOf(p.q, task.b, first, head, 0, rows);
    PackQueries(
        rows, p.head_dim, p.q.dtype,
        [&](int64_t r) -> const void* {
          return lse[r] == kInf ? nullptr : run.first + r * run.stride;
        },
        few_q);
    HWY_ALIGN float dots[kTileTokens * kMostInPlace];
    std::vector<Piece> pieces;
    ForEachTile([&](int64_t column, int64_t count) {
      scratch.sequence.Pieces(this->first + column, count, &pieces);
      const TokenRows k(scratch.sequence, pieces, {}, &KvSegment::k);
      WithElements(p.dtype(), [&](auto from) {
        for (int64_t t = 0; t < count; t += DotGroup(rows)) {
          DotQueries<decltype(from)>(k, t, task.head, rows, p.head_dim, p.scale,
                                     few_q, {dots, kMostInPlace});
        }
      });
      for (int64_t r = 0; r < rows; ++r) {
        float* row = scores.row(r) + column;
        for (int64_t t = 0; t < count; ++t) row[t] = dots[t * kMostInPlace + r];
      }
    });
  }
  // Calls run(column, count) for the block's tokens, a tile at a time.
  template <class Run>
  void ForEachTile(Run run) const {
    for (int64_t column = 0; column < tokens; column += kTileTokens) {
      run(column, std::min(kTileTokens, tokens - column));
    }
  }

  // (E2), (E21)
  void ChangeScores(int64_t head, int64_t first, int64_t rows) const {
    if (p.softcap) Softcap(*p.softcap, rows, width, t.scores, &t.derivative);
    BiasAndMaskRows(scratch, head, first, rows, t.scores);
    for (int64_t r = 0; r < rows; ++r) {
      std::fill(t.scores.row(r) + tokens, t.scores.row(r) + width, -kInf);
    }
  }

  // Whether scores need no change. A word that is shared with a lane beyond the
  // last token needs one, for its dS is to be 0.
  bool Plain(int64_t first, int64_t rows) const {
    if (p.softcap || p.bias) return false;
    if (tokens % Words::kElements != 0) return false;
    return std::none_of(
        scratch.pieces.begin(), scratch.pieces.end(), [&](const Piece& piece) {
          return scratch.sequence.Masks(piece, first, first + rows - 1);
        });
  }

  // Adds what rows [first, first + rows) of q head `head` give. The first rows
  // add to nothing yet.
  void AddRows(const RowStream& stream, int64_t head, int64_t first,
               int64_t rows, bool first_rows, Prefetcher& prefetch) const {
    const auto& q = stream.q;
    const auto& d_o = stream.d_o;
    const int64_t packed_rows =
        std::clamp<int64_t>(FirstInPlace(head) - first, 0, rows);
    const bool plain = packed_rows == rows && Plain(first, rows);
    if (!plain) {
      AddScores(q.rows, packed_rows, 0, width, prefetch);
      if (packed_rows < rows) {
        DotRows(head, first + packed_rows, rows - packed_rows,
                stream.lse + packed_rows, t.scores.from_row(packed_rows));
      }
      ChangeScores(head, first, rows);
    }
    // P and dS of a panel find its scores and dP in the L1 cache.
    ForEachPanel(width, [&](int64_t column, int64_t vectors) {
      const int64_t count = vectors * kLanes;
      if (plain) AddScores(q.rows, rows, column, count, prefetch);
      if (want.ds()) {  // (E14)
        Gemm<Words, AOrder::kRowMajor>(
            rows, count, WordsOf<Words>(p.value_dim), d_o.rows, v.from(column),
            t.d_p.from(column), {.prefetch = &prefetch});
      }
      RowsToPAndDs(rows, column, count, stream.lse, stream.bar, want.ds(),
                   p.softcap.has_value(), t);
    });
    const GemmOutput add{.accumulate = !first_rows, .prefetch = &prefetch};
    if (want.dv) {  // (E13)
      Gemm<Words, AOrder::kColumnMajor>(tokens, RoundUpToLanes(p.value_dim),
                                        WordsOf<Words>(rows), t.scores,
                                        d_o.along, dv, add);
    }
    if (want.dk) {  // (E18) but for the scale
      Gemm<Words, AOrder::kColumnMajor>(tokens, RoundUpToLanes(p.head_dim),
                                        WordsOf<Words>(rows), t.d_p, q.along,
                                        dk, add);
    }
    if (want.dq) {  // (E17) but for the scale
      Gemm<Words, AOrder::kRowMajor>(
          rows, RoundUpToLanes(p.head_dim), WordsOf<Words>(tokens), t.d_s,
          k_along, sums ? SumTile(p, task, slab, head, first) : own_dq,
          {.accumulate = !first_block, .prefetch = &prefetch});
    }
  }

  void StoreKv() const {
    for (const Piece& piece : scratch.pieces) {
      const KvSegment& s = p.kv[piece.segment];
      for (int64_t i = 0; i < piece.count; ++i) {
        const int64_t token = piece.first + i;
        const int64_t lane = piece.offset + i;
        if (s.dk) {
          StoreGradient(dk.row(lane), p.scale, p.head_dim, s.dk_before, s.dk,
                        task.b, token, task.head);
        }
        if (s.dv) {
          StoreGradient(dv.row(lane), 1.0f, p.value_dim, s.dv_before, s.dv,
                        task.b, token, task.head);
        }
      }
    }
  }

  // Has rows [0, rows) of `stream` fetched during the next AddRows.
  void Prefetch(const RowStream& stream, int64_t rows,
                Prefetcher& prefetch) const {
    const auto add = [&](const auto& packed) {
      const auto add_tile = [&](Tile tile, int64_t count) {
        prefetch.Add(tile.data, count * tile.stride * sizeof(float));
      };
      add_tile(packed.rows, rows);
      if (!packed.kOneTile) add_tile(packed.along, WordsOf<Words>(rows));
    };
    add(stream.q);
    add(stream.d_o);
    prefetch.SpreadOver(2 * GemmBlocks(kTileTokens, width));
  }

  // Clears the rows of the slab's sums that its first block, with these, does
  // not write.
  void ClearRest(Interval rows) const {
    const Interval all = slab.rows;
    if (rows.empty()) rows = {all.hi, all.hi};
    for (int64_t g = 0; g < p.group(); ++g) {
      const Tile sum = SumTile(p, task, slab, g, all.lo);
      std::fill(sum.data, sum.row(rows.lo - all.lo), 0.0f);
      std::fill(sum.row(rows.hi - all.lo), sum.row(all.size()), 0.0f);
    }
  }

  // Rows of all q heads of the kv head that see any of the tokens. False once
  // the problem is cancelled.
  bool Run(Interval rows) const {
    PackLanes();
    if (rows.empty()) {
      ClearTile(dk, tokens, RoundUpToLanes(p.head_dim));
      ClearTile(dv, tokens, RoundUpToLanes(p.value_dim));
    }
    if (want.dq && sums && first_block) ClearRest(rows);
    for (int64_t g = 0; g < p.group(); ++g) {
      if (!RunHead(task.head * p.group() + g, rows)) return false;
    }
    StoreKv();
    return true;
  }

  bool RunHead(int64_t head, Interval rows) const {
    const int64_t g = head % p.group();
    const int64_t q_len = scratch.sequence.q_len();
    const int64_t begin = rows.lo - rows.lo % Words::kElements;
    std::optional<RowStream> all;
    if (packed != nullptr) {
      all.emplace(p, q_len, packed + g * PackedRowsFloats(p, q_len));
    }
    if (want.dq && !sums) ClearDq(args, task.b, head, {0, begin});
    Prefetcher prefetch;
    for (int64_t row = begin; row < rows.hi; row += kTileTokens) {
      if (!Proceed(p)) return false;
      const int64_t count = std::min(kTileTokens, rows.hi - row);
      const int64_t next = row + count;
      prefetch.Clear();
      if (all.has_value()) {
        Prefetch(all->from(next), std::min(kTileTokens, rows.hi - next),
                 prefetch);
      } else {
        own.Pack(args, task.b, head, row, count);
      }
      AddRows(all.has_value() ? all->from(row) : own, head, row, count,
              g == 0 && row == begin, prefetch);
      if (want.dq && !sums) StoreDq(args, task.b, head, row, count, own_dq);
    }
    if (want.dq && !sums) {
      ClearDq(args, task.b, head, {std::max(begin, rows.hi), q_len});
    }
    return true;
  }

  const BackwardArgs& args;
  const FlashTask& task;
  const Slab& slab;
  const int64_t first;     // of the sequence's own tokens
  const bool first_block;  // of the slab: adds to nothing yet
  const bool sums;         // other blocks give to dQ too
  const Scratch& scratch;
  const Problem& p;
  const Wanted want;
  const int64_t tokens;
  const int64_t width;
  const Tile k, v;     // words of [dim, lanes], k's ScoreWords
  const Tile k_along;  // words of [lanes, head_dim] along the lanes
  const ScoreTiles<Words> t;
  const Tile dk, dv;    // [lanes, dim]
  float* const packed;  // Q and dO, where somebody has packed them for all
  const RowStream own;  // a tile, where nobody has
  const Tile own_dq;    // [rows, head_dim], where nobody else adds to it
  const Tile few_q;     // [kMostInPlace, head_dim]
};

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_BACKWARD_BLOCK_INL_H_
