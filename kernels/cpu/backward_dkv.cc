#include "kernels/cpu/flash.h"
#include "kernels/cpu/targets.h"
#include "kernels/give_way.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/backward_dkv.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they compile once per target.
#include "hwy/highway.h"
#include "kernels/cpu/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd {
namespace HWY_NAMESPACE {
namespace {

// (E12), and (E15), (E16) unless only dV is wanted: P, and dS = P (dP - bar)
// [softcap'], with lse and bar running along the rows.
void RowsToPAndDs(int64_t rows, int64_t width, const float* lse,
                  const float* bar, bool want_ds, bool softcap,
                  const ScoreTiles& t) {
  const F32 d;
  for (int64_t r = 0; r < rows; ++r) {
    const Vf vlse = hn::Set(d, lse[r]);
    const Vf vbar = hn::Set(d, bar[r]);
    for (int64_t i = 0; i < width; i += kLanes) {
      float* at = t.scores.row(r) + i;
      const Vf p = Exp(d, hn::Sub(hn::Load(d, at), vlse));
      hn::Store(p, d, at);
      if (!want_ds) continue;
      float* ds_at = t.d_p.row(r) + i;
      Vf ds = hn::Mul(p, hn::Sub(hn::Load(d, ds_at), vbar));
      if (softcap) ds = hn::Mul(ds, hn::Load(d, t.derivative.row(r) + i));
      hn::Store(ds, d, ds_at);
    }
  }
}

// Scores of rows [first, first + rows) over the lanes' tokens: adds the bias
// and hides what is masked, both contiguous along a row here.
void BiasAndMaskRows(const Scratch& scratch, int64_t head, int64_t first,
                     int64_t rows, Tile scores) {
  const Sequence& sequence = scratch.sequence;
  const BiasView& bias = sequence.problem().bias;
  HWY_ALIGN float bias_row[kMaxLaneTokens + 16];
  for (const Piece& piece : scratch.pieces) {
    const RowIntervals& intervals = sequence.rows(piece.segment);
    const int64_t end = piece.first + piece.count;
    const Interval all = intervals.AllRows(first, first + rows - 1);
    const bool masked = all.lo > piece.first || all.hi < end;
    if (!bias && !masked) continue;
    for (int64_t r = 0; r < rows; ++r) {
      float* row = scores.row(r) + piece.offset;
      if (bias) {
        const int64_t at = sequence.b() * bias.batch_stride +
                           head * bias.head_stride +
                           (first + r) * bias.row_stride +
                           sequence.bias_column(piece.segment) + piece.first;
        LoadRow(
            static_cast<const std::byte*>(bias.data) + at * SizeOf(bias.dtype),
            bias.dtype, piece.count, piece.count, bias_row);
        for (int64_t i = 0; i < piece.count; ++i) row[i] += bias_row[i];
      }
      if (masked) {
        const Interval seen = intervals.Row(first + r);
        HideOutside(row, 0, piece.count,
                    {seen.lo - piece.first, seen.hi - piece.first});
      }
    }
  }
}

// Tokens of K and V across the lanes: those of scratch.pieces.
struct DkvBlock {
  DkvBlock(const BackwardArgs& args, const FlashTask& task, bool want_dk,
           bool want_dv, Scratch& scratch)
      : args(args),
        task(task),
        want_dk(want_dk),
        want_dv(want_dv),
        scratch(scratch),
        width(RoundUpToLanes(task.count)),
        k(TakeTile(scratch, args.problem.head_dim + 3, width)),
        v(TakeTile(scratch, args.problem.value_dim + 3, width)),
        q(TakeTile(scratch, kTileTokens, args.problem.head_dim)),
        d_o(TakeTile(scratch, kTileTokens, args.problem.value_dim)),
        t(scratch, args.problem, width),
        dk(TakeTile(scratch, task.count, args.problem.head_dim)),
        dv(TakeTile(scratch, task.count, args.problem.value_dim)),
        lse(scratch.Take(kTileTokens)),
        bar(scratch.Take(kTileTokens)) {}

  void PackLanes() const {
    const Problem& p = args.problem;
    const auto pack = [&](ConstTensorView KvSegment::*which, int64_t dim,
                          Tile to) {
      PackColumns(
          task.count, dim, p.dtype(),
          [&](int64_t lane) -> const void* {
            for (const Piece& piece : scratch.pieces) {
              if (lane >= piece.offset + piece.count) continue;
              return RowAt(scratch.sequence.kv(piece.segment).*which, task.b,
                           piece.first + lane - piece.offset, task.head);
            }
            return nullptr;
          },
          to);
    };
    pack(&KvSegment::k, p.head_dim, k);
    if (want_dk) pack(&KvSegment::v, p.value_dim, v);
    ClearTile(dk, task.count, RoundUpToLanes(p.head_dim));
    ClearTile(dv, task.count, RoundUpToLanes(p.value_dim));
  }

  // Adds what rows [first, first + rows) of q head `head` give; rows up to
  // `last` come next.
  void AddRows(int64_t head, int64_t first, int64_t rows, int64_t last) const {
    const Problem& p = args.problem;
    // Of the rows that come next it is not yet known whether they are empty.
    bool empty[kTileTokens];
    for (int64_t r = 0; r < rows; ++r) {
      const RowTerms terms = TermsOf(args, task.b, head, first + r);
      lse[r] = terms.lse;
      bar[r] = terms.bar;
      empty[r] = terms.empty;
    }
    const auto pack = [&](const ConstTensorView& view, int64_t dim, Tile to) {
      PackRows(
          rows, last - first, dim, view.dtype,
          [&](int64_t r) {
            return r < rows && empty[r] ? nullptr
                                        : RowAt(view, task.b, first + r, head);
          },
          to);
    };
    pack(p.q, p.head_dim, q);
    pack(args.d_o, p.value_dim, d_o);
    // (E1), (E2), (E21)
    Gemm<AOrder::kRowMajor>(rows, width, p.head_dim, q.data, q.stride, k.data,
                            k.stride, t.scores.data, t.scores.stride,
                            {.factor = p.scale});
    SaturateScores(p.scale, rows, width, t.scores);
    if (p.softcap) {
      Softcap(*p.softcap, rows, width, t.scores, &t.derivative);
    }
    BiasAndMaskRows(scratch, head, first, rows, t.scores);
    if (want_dk) {  // (E14)
      Gemm<AOrder::kRowMajor>(rows, width, p.value_dim, d_o.data, d_o.stride,
                              v.data, v.stride, t.d_p.data, t.d_p.stride, {});
    }
    RowsToPAndDs(rows, width, lse, bar, want_dk, p.softcap.has_value(), t);
    if (want_dv) {  // (E13)
      Gemm<AOrder::kColumnMajor>(task.count, RoundUpToLanes(p.value_dim), rows,
                                 t.scores.data, t.scores.stride, d_o.data,
                                 d_o.stride, dv.data, dv.stride,
                                 {.accumulate = true});
    }
    if (want_dk) {  // (E18) but for the scale
      Gemm<AOrder::kColumnMajor>(task.count, RoundUpToLanes(p.head_dim), rows,
                                 t.d_p.data, t.d_p.stride, q.data, q.stride,
                                 dk.data, dk.stride, {.accumulate = true});
    }
  }

  void Store(const Piece& piece) const {
    const Problem& p = args.problem;
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

  const BackwardArgs& args;
  const FlashTask& task;
  const bool want_dk, want_dv;
  const Scratch& scratch;
  const int64_t width;
  const Tile k, v;    // [dim, lanes]
  const Tile q, d_o;  // [stream, dim]
  const ScoreTiles t;
  const Tile dk, dv;  // [lanes, dim]
  float* const lse;   // [stream]
  float* const bar;
};

// The rows that see any of the block's tokens.
Interval RowsOf(const Scratch& scratch) {
  Interval rows{scratch.sequence.q_len(), 0};
  for (const Piece& piece : scratch.pieces) {
    const Interval seen = scratch.sequence.RowsThatSee(piece);
    if (seen.empty()) continue;
    rows.lo = std::min(rows.lo, seen.lo);
    rows.hi = std::max(rows.hi, seen.hi);
  }
  return rows;
}

}  // namespace

void RunDkvTask(const BackwardArgs& args, const FlashTask& task,
                Scratch& scratch) {
  const Problem& p = args.problem;
  scratch.Begin();
  scratch.sequence.Reset(p, task.b);
  scratch.sequence.Pieces(task.first, task.count, &scratch.pieces);
  bool want_dk = false, want_dv = false;
  for (const Piece& piece : scratch.pieces) {
    const KvSegment& s = p.kv[piece.segment];
    want_dk = want_dk || s.dk;
    want_dv = want_dv || s.dv;
  }
  if (!want_dk && !want_dv) return;

  const DkvBlock block(args, task, want_dk, want_dv, scratch);
  block.PackLanes();
  const Interval rows = RowsOf(scratch);
  for (int64_t g = 0; g < p.group(); ++g) {
    for (int64_t row = rows.lo; row < rows.hi; row += kTileTokens) {
      if (!Proceed(p)) return;
      block.AddRows(task.head * p.group() + g, row,
                    std::min(kTileTokens, rows.hi - row), rows.hi);
    }
  }
  for (const Piece& piece : scratch.pieces) block.Store(piece);
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnd {

HWY_EXPORT(RunDkvTask);

void RunFlashDkv(const BackwardArgs& args, const FlashTask& task,
                 Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(RunDkvTask)(args, task, scratch);
}

}  // namespace attnd
#endif  // HWY_ONCE
