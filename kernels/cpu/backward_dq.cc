#include "kernels/cpu/flash.h"
#include "kernels/cpu/targets.h"
#include "kernels/give_way.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/backward_dq.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they compile once per target.
#include "hwy/highway.h"
#include "kernels/cpu/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd {
namespace HWY_NAMESPACE {
namespace {

// (E12), (E15), (E16): dS = P (dP - bar) [softcap'], with lse and bar running
// along the lanes.
void LanesToDs(int64_t tokens, int64_t width, const float* lse,
               const float* bar, bool softcap, const ScoreTiles& t) {
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

// Rows of Q and dO across the lanes, and what backward starts from.
struct DqBlock {
  DqBlock(const BackwardArgs& args, const FlashTask& task, Scratch& scratch)
      : args(args),
        task(task),
        lanes(scratch, task.head, task.heads, task.first, task.count),
        width(RoundUpToLanes(lanes.lanes())),
        q(TakeTile(scratch, args.problem.head_dim + 3, width)),
        d_o(TakeTile(scratch, args.problem.value_dim + 3, width)),
        k(TakeTile(scratch, kTileTokens, args.problem.head_dim)),
        v(TakeTile(scratch, kTileTokens, args.problem.value_dim)),
        t(scratch, args.problem, width),
        acc(TakeTile(scratch, lanes.lanes(), args.problem.head_dim)),
        lse(scratch.Take(width)),
        bar(scratch.Take(width)) {}

  void PackLanes() const {
    const Problem& p = args.problem;
    bool empty[kMaxLaneTokens];
    std::fill(lse, lse + width, kInf);
    std::fill(bar, bar + width, 0.0f);
    for (int64_t i = 0; i < lanes.lanes(); ++i) {
      const RowTerms terms =
          TermsOf(args, task.b, lanes.head(i), lanes.q_row(i));
      lse[i] = terms.lse;
      bar[i] = terms.bar;
      empty[i] = terms.empty;
    }
    const auto pack = [&](const ConstTensorView& view, int64_t dim, Tile to) {
      PackColumns(
          lanes.lanes(), dim, view.dtype,
          [&](int64_t i) { return empty[i] ? nullptr : lanes.RowOf(view, i); },
          to);
    };
    pack(p.q, p.head_dim, q);
    pack(args.d_o, p.value_dim, d_o);
    ClearTile(acc, lanes.lanes(), RoundUpToLanes(p.head_dim));
  }

  // Adds what the tokens of scratch.pieces give.
  void AddTile(const Scratch& scratch, int64_t tokens) const {
    const Problem& p = args.problem;
    const int64_t kv_head = task.head / p.group();
    PackKv(scratch, &KvSegment::k, kv_head, p.head_dim, k);
    PackKv(scratch, &KvSegment::v, kv_head, p.value_dim, v);
    // (E1), (E2), (E21)
    Gemm<AOrder::kRowMajor>(tokens, width, p.head_dim, k.data, k.stride, q.data,
                            q.stride, t.scores.data, t.scores.stride,
                            {.factor = p.scale});
    SaturateScores(p.scale, tokens, width, t.scores);
    if (p.softcap) Softcap(*p.softcap, tokens, width, t.scores, &t.derivative);
    if (p.bias) lanes.AddBias(t.scores, t.d_p, tokens);
    lanes.ApplyMask(t.scores);
    // (E14)
    Gemm<AOrder::kRowMajor>(tokens, width, p.value_dim, v.data, v.stride,
                            d_o.data, d_o.stride, t.d_p.data, t.d_p.stride, {});
    LanesToDs(tokens, width, lse, bar, p.softcap.has_value(), t);
    // (E17) but for the scale
    Gemm<AOrder::kColumnMajor>(lanes.lanes(), RoundUpToLanes(p.head_dim),
                               tokens, t.d_p.data, t.d_p.stride, k.data,
                               k.stride, acc.data, acc.stride,
                               {.accumulate = true});
  }

  void Store() const {
    const Problem& p = args.problem;
    for (int64_t i = 0; i < lanes.lanes(); ++i) {
      StoreRow(acc.row(i), p.scale, p.head_dim, args.dq.dtype,
               RowAt(args.dq, task.b, lanes.q_row(i), lanes.head(i)));
    }
  }

  const BackwardArgs& args;
  const FlashTask& task;
  const LaneRows lanes;
  const int64_t width;
  const Tile q, d_o;  // [dim, lanes]
  const Tile k, v;    // [stream, dim]
  const ScoreTiles t;
  const Tile acc;  // [lanes, head_dim]
  float* const lse;
  float* const bar;
};

}  // namespace

void RunDqTask(const BackwardArgs& args, const FlashTask& task,
               Scratch& scratch) {
  const Problem& p = args.problem;
  scratch.Begin();
  scratch.sequence.Reset(p, task.b);
  const DqBlock block(args, task, scratch);
  block.PackLanes();
  TileWalk walk(scratch.sequence, task.first, task.first + task.count - 1);
  while (const int64_t tokens = walk.Next(&scratch.pieces)) {
    if (!Proceed(p)) return;
    block.AddTile(scratch, tokens);
  }
  block.Store();
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnd {

HWY_EXPORT(RunDqTask);

void RunFlashDq(const BackwardArgs& args, const FlashTask& task,
                Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(RunDqTask)(args, task, scratch);
}

}  // namespace attnd
#endif  // HWY_ONCE
