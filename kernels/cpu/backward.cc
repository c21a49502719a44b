#include "kernels/cpu/flash.h"
#include "kernels/cpu/targets.h"
#include "kernels/give_way.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they compile once per target.
#include "hwy/highway.h"
#include "kernels/cpu/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd {
namespace HWY_NAMESPACE {
namespace {

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

// Rows of Q or dO of one q head, packed for the products along their dim and
// for those along the rows.
template <class Words>
struct PackedRows {
  Tile rows;   // words of [q_len, dim]
  Tile along;  // words of [q_len, dim] along the rows

  // Moves `memory` on.
  PackedRows(int64_t q_len, int64_t dim, float*& memory) {
    const auto take = [&](int64_t rows, int64_t columns) {
      const Tile tile{memory, TileStride(columns)};
      memory = tile.row(rows);
      return tile;
    };
    rows = take(q_len, WordsOf<Words>(dim));
    along = Words::kElements == 1 ? rows : take(WordsOf<Words>(q_len), dim);
  }

  // From row `first` on, a multiple of Words::kElements.
  PackedRows from(int64_t first) const {
    PackedRows result = *this;
    result.rows.data = rows.row(first);
    result.along.data = along.row(first / Words::kElements);
    return result;
  }

  template <class RowOf>
  void Pack(int64_t count, int64_t dim, DType dtype, RowOf row_of) const {
    PackRows<Words>(count, dim, dtype, row_of, rows);
    if (Words::kElements > 1) {
      PackAlongTokens<Words>(count, dim, dtype, row_of, along);
    }
  }
};

// All that streams by.
template <class Words>
struct Stream {
  PackedRows<Words> q, d_o;
  float* lse;  // [q_len]
  float* bar;  // [q_len]

  Stream(const Problem& p, int64_t q_len, float* memory)
      : q(q_len, p.head_dim, memory),
        d_o(q_len, p.value_dim, memory),
        lse(memory),
        bar(memory + q_len) {}
};

template <class Words>
void PackStream(const BackwardArgs& args, const FlashTask& task) {
  const Problem& p = args.problem;
  const Stream<Words> s(p, QLen(p, task.b), task.packed);
  for (int64_t row = task.first; row < task.first + task.count; ++row) {
    const RowTerms terms = TermsOf(args, task.b, task.head, row);
    s.lse[row] = terms.lse;
    s.bar[row] = terms.bar;
  }
  const auto rows_of = [&](const ConstTensorView& view) {
    return [&](int64_t r) -> const void* {
      // Of an empty row nothing counts, not even NaN.
      const int64_t row = task.first + r;
      return s.lse[row] == kInf ? nullptr
                                : RowAt(view, task.b, row, task.head);
    };
  };
  s.q.from(task.first).Pack(task.count, p.head_dim, p.q.dtype, rows_of(p.q));
  s.d_o.from(task.first)
      .Pack(task.count, p.value_dim, args.d_o.dtype, rows_of(args.d_o));
}

// Tokens of K and V across the lanes, those of scratch.pieces; Q and dO stream
// by. All five products of a tile.
template <class Words>
struct BackwardBlock {
  BackwardBlock(const BackwardArgs& args, const FlashTask& task,
                const Slab& slab, int64_t tokens, Scratch& scratch)
      : args(args),
        task(task),
        slab(slab),
        scratch(scratch),
        p(args.problem),
        want(args, scratch.pieces),
        tokens(tokens),
        width(RoundUpToLanes(tokens)),
        k(TakeTile(scratch, WordsOf<Words>(p.head_dim) + 3, width)),
        v(TakeTile(scratch, WordsOf<Words>(p.value_dim) + 3, width)),
        k_along(TakeTile(scratch, WordsOf<Words>(tokens), p.head_dim)),
        t(scratch, p, width),
        dk(TakeTile(scratch, tokens, p.head_dim)),
        dv(TakeTile(scratch, tokens, p.value_dim)) {}

  void PackLanes() const {
    const auto rows_of = [&](ConstTensorView KvSegment::*which) {
      return [this, which](int64_t lane) {
        return KvRow(scratch.sequence, scratch.pieces, which, task.head, lane);
      };
    };
    const auto k_rows = rows_of(&KvSegment::k);
    PackColumns<Words>(tokens, p.head_dim, p.dtype(), k_rows, k);
    if (want.ds()) {
      PackColumns<Words>(tokens, p.value_dim, p.dtype(),
                         rows_of(&KvSegment::v), v);
    }
    if (want.dq) {
      PackAlongTokens<Words>(tokens, p.head_dim, p.dtype(), k_rows, k_along);
    }
    ClearTile(dk, tokens, RoundUpToLanes(p.head_dim));
    ClearTile(dv, tokens, RoundUpToLanes(p.value_dim));
  }

  // (E1) for columns [column, column + count).
  void AddScores(Tile q, int64_t rows, int64_t column, int64_t count,
                 Prefetcher& prefetch) const {
    Gemm<Words, AOrder::kRowMajor>(
        rows, count, WordsOf<Words>(p.head_dim), q, k.from(column),
        t.scores.from(column), {.factor = p.scale, .prefetch = &prefetch});
  }

  // (E2), (E21)
  void ChangeScores(int64_t head, int64_t first, int64_t rows) const {
    SaturateScores(p.scale, rows, width, t.scores);
    if (p.softcap) Softcap(*p.softcap, rows, width, t.scores, &t.derivative);
    BiasAndMaskRows(scratch, head, first, rows, t.scores);
    for (int64_t r = 0; r < rows; ++r) {
      std::fill(t.scores.row(r) + tokens, t.scores.row(r) + width, -kInf);
    }
  }

  // Whether scores need no change. A word that is shared with a lane beyond the
  // last token needs one: P = exp(0 - lse) there might be infinite.
  bool Plain(int64_t first, int64_t rows) const {
    if (p.softcap || p.bias || !KeepsRange(p.scale)) return false;
    if (tokens % Words::kElements != 0) return false;
    return std::none_of(scratch.pieces.begin(), scratch.pieces.end(),
                        [&](const Piece& piece) {
                          return scratch.sequence.Masks(piece, first,
                                                        first + rows - 1);
                        });
  }

  // Adds what rows [first, first + rows) of q head `head` give.
  void AddRows(const Stream<Words>& stream, int64_t head, int64_t first,
               int64_t rows, Prefetcher& prefetch) const {
    const PackedRows<Words> q = stream.q.from(first);
    const PackedRows<Words> d_o = stream.d_o.from(first);
    const bool plain = Plain(first, rows);
    if (!plain) {
      AddScores(q.rows, rows, 0, width, prefetch);
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
      RowsToPAndDs(rows, column, count, stream.lse + first,
                   stream.bar + first, want.ds(),
                   p.softcap.has_value(), t);
    });
    const GemmOutput add{.accumulate = true, .prefetch = &prefetch};
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
      Gemm<Words, AOrder::kRowMajor>(rows, RoundUpToLanes(p.head_dim),
                                     WordsOf<Words>(tokens), t.d_s, k_along,
                                     SlabTile(args, task, slab, head, first),
                                     add);
    }
  }

  void Store() const {
    for (const Piece& piece : scratch.pieces) {
      const KvSegment& s = p.kv[piece.segment];
      for (int64_t i = 0; i < piece.count; ++i) {
        const int64_t token = piece.first + i;
        const int64_t lane = piece.offset + i;
        if (s.dk) {
          StoreRow(dk.row(lane), p.scale, p.head_dim, s.dk.dtype,
                   RowAt(s.dk, task.b, token, task.head));
        }
        if (s.dv) {
          StoreRow(dv.row(lane), 1.0f, p.value_dim, s.dv.dtype,
                   RowAt(s.dv, task.b, token, task.head));
        }
      }
    }
  }

  // Has rows [first, first + rows) fetched during the next AddRows.
  void Prefetch(const Stream<Words>& stream, int64_t first, int64_t rows,
                Prefetcher& prefetch) const {
    prefetch.Clear();
    for (const PackedRows<Words>* packed : {&stream.q, &stream.d_o}) {
      const auto add = [&](Tile tile, int64_t count) {
        prefetch.Add(tile.data, count * tile.stride * sizeof(float));
      };
      add(packed->from(first).rows, rows);
      if (Words::kElements > 1) {
        add(packed->from(first).along, WordsOf<Words>(rows));
      }
    }
    prefetch.SpreadOver(2 * GemmBlocks(kTileTokens, width));
  }

  // False once the problem is cancelled.
  bool Run(Interval rows) const {
    PackLanes();
    Prefetcher prefetch;
    const int64_t q_len = scratch.sequence.q_len();
    const int64_t begin = rows.lo - rows.lo % Words::kElements;
    for (int64_t g = 0; g < p.group(); ++g) {
      const Stream<Words> stream(
          p, q_len, task.packed + g * PackedRowsFloats(p, q_len));
      for (int64_t row = begin; row < rows.hi; row += kTileTokens) {
        if (!Proceed(p)) return false;
        const int64_t next = std::min(row + kTileTokens, rows.hi);
        Prefetch(stream, next, std::min(kTileTokens, rows.hi - next), prefetch);
        AddRows(stream, task.head * p.group() + g, row,
                std::min(kTileTokens, rows.hi - row), prefetch);
      }
    }
    Store();
    return true;
  }

  // Rows of q head `head` from `first` on, in the slab's sum of dQ.
  static Tile SlabTile(const BackwardArgs& args, const FlashTask& task,
                       const Slab& slab, int64_t head, int64_t first) {
    const int64_t g = head % args.problem.group();
    const int64_t stride = SlabStride(args.problem);
    return {task.workspace + slab.offset +
                (g * slab.rows.size() + first - slab.rows.lo) * stride,
            stride};
  }

  const BackwardArgs& args;
  const FlashTask& task;
  const Slab& slab;
  const Scratch& scratch;
  const Problem& p;
  const Wanted want;
  const int64_t tokens;
  const int64_t width;
  const Tile k, v;               // words of [dim, lanes]
  const Tile k_along;            // words of [lanes, head_dim] along the lanes
  const ScoreTiles<Words> t;
  const Tile dk, dv;  // [lanes, dim]
};

// (E17): dQ of rows [first, last) of q head `head`, the slabs in ascending
// order.
void SumSlabs(const BackwardArgs& args, const FlashTask& task,
              absl::Span<const Slab> slabs, int64_t head, int64_t first,
              int64_t last) {
  const F32 d;
  const Problem& p = args.problem;
  HWY_ALIGN float sum[kMaxHeadDim];
  for (int64_t row = first; row < last; ++row) {
    std::fill_n(sum, kMaxHeadDim, 0.0f);
    for (const Slab& slab : slabs) {
      if (row < slab.rows.lo || row >= slab.rows.hi) continue;
      const float* from =
          BackwardBlock<F32Words>::SlabTile(args, task, slab, head, row).data;
      for (int64_t i = 0; i < p.head_dim; i += kLanes) {
        hn::Store(hn::Add(hn::Load(d, sum + i), hn::Load(d, from + i)), d,
                  sum + i);
      }
    }
    StoreRow(sum, p.scale, p.head_dim, args.dq.dtype,
             RowAt(args.dq, task.b, row, head));
  }
}

}  // namespace

void RunPackQTask(const BackwardArgs& args, const FlashTask& task) {
  WithWords(args.problem, [&](auto words) {
    PackStream<decltype(words)>(args, task);
  });
}

void RunSlabTask(const BackwardArgs& args, const FlashTask& task,
                 absl::Span<const Slab> slabs, Scratch& scratch) {
  const Problem& p = args.problem;
  const Slab& slab = slabs[task.part];
  scratch.sequence.Reset(p, task.b);
  if (args.dq) {
    std::fill_n(task.workspace + slab.offset,
                p.group() * slab.rows.size() * SlabStride(p), 0.0f);
  }
  bool cancelled = false;
  for (int64_t first = slab.columns.lo; first < slab.columns.hi && !cancelled;
       first += task.count) {
    const int64_t tokens = std::min(task.count, slab.columns.hi - first);
    scratch.Begin();
    scratch.sequence.Pieces(first, tokens, &scratch.pieces);
    if (!Wanted(args, scratch.pieces).any()) continue;
    WithWords(p, [&](auto words) {
      const BackwardBlock<decltype(words)> block(args, task, slab, tokens,
                                                 scratch);
      cancelled = !block.Run(scratch.sequence.RowsThatSee(scratch.pieces));
    });
  }
  if (cancelled) return;
  if (!args.dq || slabs.size() > 1) return;
  for (int64_t g = 0; g < p.group(); ++g) {
    SumSlabs(args, task, slabs, task.head * p.group() + g, 0,
             scratch.sequence.q_len());
  }
}

void RunSumTask(const BackwardArgs& args, const FlashTask& task,
                absl::Span<const Slab> slabs) {
  SumSlabs(args, task, slabs, task.head, task.first, task.first + task.count);
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnd {

HWY_EXPORT(RunPackQTask);
HWY_EXPORT(RunSlabTask);
HWY_EXPORT(RunSumTask);

void RunFlashPackQ(const BackwardArgs& args, const FlashTask& task) {
  HWY_DYNAMIC_DISPATCH(RunPackQTask)(args, task);
}

void RunFlashSlab(const BackwardArgs& args, const FlashTask& task,
                  absl::Span<const Slab> slabs, Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(RunSlabTask)(args, task, slabs, scratch);
}

void RunFlashSum(const BackwardArgs& args, const FlashTask& task,
                 absl::Span<const Slab> slabs) {
  HWY_DYNAMIC_DISPATCH(RunSumTask)(args, task, slabs);
}

}  // namespace attnd
#endif  // HWY_ONCE
