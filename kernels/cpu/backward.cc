#include "kernels/cpu/flash.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they compile once per target.
#include "hwy/highway.h"
#include "kernels/cpu/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd {
namespace HWY_NAMESPACE {
namespace {

// What one row of Q brings to dS = P (dP - bar), P = exp(score - lse).
struct RowTerms {
  float lse;  // +inf where the row attends to nothing: P is 0
  float bar;  // delta - d_lse
  bool empty;
};

RowTerms TermsOf(const BackwardArgs& args, int64_t b, int64_t head,
                 int64_t row) {
  const float lse = RowAt(args.lse, b, head)[row];
  if (lse == -kInf) return {kInf, 0, true};
  const int64_t dim = args.problem.value_dim;
  float bar = 0;
  if (args.delta) {
    bar = RowAt(args.delta, b, head)[row];
  } else {
    const F32 d;
    HWY_ALIGN float o[kMaxHeadDim];
    HWY_ALIGN float d_o[kMaxHeadDim];
    const int64_t padded = RoundUpToLanes(dim);
    LoadRow(RowAt(args.o, b, row, head), args.o.dtype, dim, padded, o);
    LoadRow(RowAt(args.d_o, b, row, head), args.d_o.dtype, dim, padded, d_o);
    Vf sum = hn::Zero(d);
    for (int64_t i = 0; i < padded; i += kLanes) {
      sum = hn::MulAdd(hn::Load(d, o + i), hn::Load(d, d_o + i), sum);
    }
    bar = hn::GetLane(hn::SumOfLanes(d, sum));
  }
  if (args.d_lse) bar -= RowAt(args.d_lse, b, head)[row];
  return {lse, bar, false};
}

// What dQ and dK share: scores and dP of a tile become P and dS, row by row or
// lane by lane.
struct Scratches {
  Tile scores;  // then P
  Tile d_p;     // then dS
  Tile derivative;
};

// dS = P (dP - bar) [softcap'], with lse and bar running along the lanes.
void LanesToDs(int64_t tokens, int64_t width, const float* lse,
               const float* bar, bool softcap, const Scratches& t) {
  const F32 d;
  for (int64_t i = 0; i < width; i += kLanes) {
    const Vf vlse = hn::Load(d, lse + i);
    const Vf vbar = hn::Load(d, bar + i);
    for (int64_t r = 0; r < tokens; ++r) {
      const Vf p = Exp(d, hn::Sub(hn::Load(d, t.scores.row(r) + i), vlse));
      Vf ds = hn::Mul(p, hn::Sub(hn::Load(d, t.d_p.row(r) + i), vbar));
      if (softcap) ds = hn::Mul(ds, hn::Load(d, t.derivative.row(r) + i));
      hn::Store(ds, d, t.d_p.row(r) + i);
    }
  }
}

// The same with lse and bar running along the rows; keeps P too. No dS when
// only dV is wanted.
void RowsToPAndDs(int64_t rows, int64_t width, const float* lse,
                  const float* bar, bool want_ds, bool softcap,
                  const Scratches& t) {
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

Scratches TakeScratches(Scratch& scratch, const Problem& p, int64_t width) {
  Scratches t;
  t.scores = TakeTile(scratch, kTileTokens, width);
  t.d_p = TakeTile(scratch, kTileTokens, width);
  t.derivative = TakeTile(scratch, p.softcap ? kTileTokens : 0, width);
  return t;
}

// dQ of a block of rows: K and V stream by, as in forward.
void DqBlock(const BackwardArgs& args, const FlashTask& task,
             Scratch& scratch) {
  const Problem& p = args.problem;
  scratch.Begin();
  scratch.sequence.Reset(p, task.b);
  const LaneRows lanes(scratch, task.head, task.heads, task.first, task.count);
  const int64_t width = RoundUpToLanes(lanes.lanes());
  const int64_t kv_head = task.head / p.group();

  const Tile q = TakeTile(scratch, p.head_dim + 3, width);
  const Tile d_o = TakeTile(scratch, p.value_dim + 3, width);
  const Tile k = TakeTile(scratch, kTileTokens, p.head_dim);
  const Tile v = TakeTile(scratch, kTileTokens, p.value_dim);
  const Scratches t = TakeScratches(scratch, p, width);
  const Tile acc = TakeTile(scratch, lanes.lanes(), p.head_dim);
  float* lse = scratch.Take(width);
  float* bar = scratch.Take(width);
  bool empty[kMaxLaneTokens];
  std::fill(lse, lse + width, kInf);
  std::fill(bar, bar + width, 0.0f);
  for (int64_t i = 0; i < lanes.lanes(); ++i) {
    const RowTerms terms = TermsOf(args, task.b, lanes.head(i), lanes.q_row(i));
    lse[i] = terms.lse;
    bar[i] = terms.bar;
    empty[i] = terms.empty;
    std::fill(acc.row(i), acc.row(i) + RoundUpToLanes(p.head_dim), 0.0f);
  }
  const auto pack = [&](const ConstTensorView& view, int64_t dim, Tile to) {
    PackColumns(
        lanes.lanes(), dim, view.dtype,
        [&](int64_t i) { return empty[i] ? nullptr : lanes.RowOf(view, i); },
        to);
  };
  pack(p.q, p.head_dim, q);
  pack(args.d_o, p.value_dim, d_o);

  TileWalk walk(scratch.sequence, task.first, task.first + task.count - 1);
  while (const int64_t tokens = walk.Next(&scratch.pieces)) {
    if (p.cancel != nullptr && p.cancel->cancelled()) return;
    PackKv(scratch, &KvSegment::k, kv_head, p.head_dim, k);
    PackKv(scratch, &KvSegment::v, kv_head, p.value_dim, v);
    Gemm<AOrder::kRowMajor>(tokens, width, p.head_dim, k.data, k.stride, q.data,
                            q.stride, t.scores.data, t.scores.stride,
                            {.factor = p.scale});
    SaturateScores(p.scale, tokens, width, t.scores);
    if (p.softcap) Softcap(*p.softcap, tokens, width, t.scores, &t.derivative);
    if (p.bias) lanes.AddBias(t.scores, t.d_p, tokens);
    lanes.ApplyMask(t.scores);
    Gemm<AOrder::kRowMajor>(tokens, width, p.value_dim, v.data, v.stride,
                            d_o.data, d_o.stride, t.d_p.data, t.d_p.stride, {});
    LanesToDs(tokens, width, lse, bar, p.softcap.has_value(), t);
    Gemm<AOrder::kColumnMajor>(lanes.lanes(), RoundUpToLanes(p.head_dim),
                               tokens, t.d_p.data, t.d_p.stride, k.data,
                               k.stride, acc.data, acc.stride,
                               {.accumulate = true});
  }
  for (int64_t i = 0; i < lanes.lanes(); ++i) {
    StoreRow(acc.row(i), p.scale, p.head_dim, args.dq.dtype,
             RowAt(args.dq, task.b, lanes.q_row(i), lanes.head(i)));
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

// Runs of K/V tokens across the lanes, of one kv head.
struct DkvBlock {
  const BackwardArgs& args;
  const FlashTask& task;
  Scratch& scratch;
  bool want_dk = false, want_dv = false;
  int64_t width = 0;
  Tile k = {}, v = {}, q = {}, d_o = {};
  Scratches t = {};
  Tile dk = {}, dv = {};
  float* lse = nullptr;
  float* bar = nullptr;

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
    Gemm<AOrder::kRowMajor>(rows, width, p.head_dim, q.data, q.stride, k.data,
                            k.stride, t.scores.data, t.scores.stride,
                            {.factor = p.scale});
    SaturateScores(p.scale, rows, width, t.scores);
    if (p.softcap) {
      Softcap(*p.softcap, rows, width, t.scores, &t.derivative);
    }
    BiasAndMaskRows(scratch, head, first, rows, t.scores);
    if (want_dk) {
      Gemm<AOrder::kRowMajor>(rows, width, p.value_dim, d_o.data, d_o.stride,
                              v.data, v.stride, t.d_p.data, t.d_p.stride, {});
    }
    RowsToPAndDs(rows, width, lse, bar, want_dk, p.softcap.has_value(), t);
    if (want_dv) {
      Gemm<AOrder::kColumnMajor>(task.count, RoundUpToLanes(p.value_dim), rows,
                                 t.scores.data, t.scores.stride, d_o.data,
                                 d_o.stride, dv.data, dv.stride,
                                 {.accumulate = true});
    }
    if (want_dk) {
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
};

void ClearTile(Tile tile, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    std::fill(tile.row(r), tile.row(r) + columns, 0.0f);
  }
}

void RunDkvBlock(const BackwardArgs& args, const FlashTask& task,
                 Scratch& scratch) {
  const Problem& p = args.problem;
  scratch.Begin();
  scratch.sequence.Reset(p, task.b);
  const Sequence& sequence = scratch.sequence;
  sequence.Pieces(task.first, task.count, &scratch.pieces);
  DkvBlock block{.args = args, .task = task, .scratch = scratch};
  Interval rows{sequence.q_len(), 0};
  for (const Piece& piece : scratch.pieces) {
    const KvSegment& s = sequence.kv(piece.segment);
    block.want_dk |= static_cast<bool>(s.dk);
    block.want_dv |= static_cast<bool>(s.dv);
    const Interval seen = sequence.RowsThatSee(piece);
    if (seen.empty()) continue;
    rows.lo = std::min(rows.lo, seen.lo);
    rows.hi = std::max(rows.hi, seen.hi);
  }
  if (!block.want_dk && !block.want_dv) return;

  block.width = RoundUpToLanes(task.count);
  block.k = TakeTile(scratch, p.head_dim + 3, block.width);
  block.v = TakeTile(scratch, p.value_dim + 3, block.width);
  block.q = TakeTile(scratch, kTileTokens, p.head_dim);
  block.d_o = TakeTile(scratch, kTileTokens, p.value_dim);
  block.t = TakeScratches(scratch, p, block.width);
  block.dk = TakeTile(scratch, task.count, p.head_dim);
  block.dv = TakeTile(scratch, task.count, p.value_dim);
  block.lse = scratch.Take(kTileTokens);
  block.bar = scratch.Take(kTileTokens);
  ClearTile(block.dk, task.count, RoundUpToLanes(p.head_dim));
  ClearTile(block.dv, task.count, RoundUpToLanes(p.value_dim));

  const auto pack = [&](ConstTensorView KvSegment::*which, int64_t dim,
                        Tile to) {
    PackColumns(
        task.count, dim, p.dtype(),
        [&](int64_t lane) -> const void* {
          for (const Piece& piece : scratch.pieces) {
            if (lane < piece.offset + piece.count) {
              return RowAt(sequence.kv(piece.segment).*which, task.b,
                           piece.first + lane - piece.offset, task.head);
            }
          }
          return nullptr;
        },
        to);
  };
  pack(&KvSegment::k, p.head_dim, block.k);
  if (block.want_dk) pack(&KvSegment::v, p.value_dim, block.v);

  const int64_t head = task.head * p.group();
  for (int64_t g = 0; g < p.group(); ++g) {
    for (int64_t row = rows.lo; row < rows.hi; row += kTileTokens) {
      if (p.cancel != nullptr && p.cancel->cancelled()) return;
      block.AddRows(head + g, row, std::min(kTileTokens, rows.hi - row),
                    rows.hi);
    }
  }
  for (const Piece& piece : scratch.pieces) block.Store(piece);
}

}  // namespace

void RunBackwardTask(const BackwardArgs& args, const FlashTask& task,
                     Scratch& scratch) {
  if (task.kind == FlashTask::Kind::kDq) {
    DqBlock(args, task, scratch);
  } else {
    RunDkvBlock(args, task, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnd {

HWY_EXPORT(RunBackwardTask);

void RunFlashBackward(const BackwardArgs& args, const FlashTask& task,
                      Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(RunBackwardTask)(args, task, scratch);
}

}  // namespace attnd
#endif  // HWY_ONCE
