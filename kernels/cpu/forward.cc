#include "kernels/cpu/flash.h"
#include "kernels/cpu/targets.h"
#include "kernels/give_way.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/forward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they compile once per target.
#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd {
namespace HWY_NAMESPACE {
namespace {

// The state of online softmax (E8), one query to a lane.
struct Softmax {
  float* max;      // of the scores so far, -inf at first
  float* sum;      // of exp(score - max)
  float* rescale;  // exp(old max - new max) of the last tile
};

// Scores [tokens, width] become exp(score - max) in place: (E8).
void UpdateSoftmax(int64_t tokens, int64_t width, Tile scores,
                   const Softmax& state) {
  const F32 d;
  const Vf none = hn::Set(d, -kInf);
  for (int64_t i = 0; i < width; i += kLanes) {
    const Vf old_max = hn::Load(d, state.max + i);
    Vf max = old_max;
    Vf max2 = none;
    const float* at = scores.data + i;
    int64_t t = 0;
    for (; t + 4 <= tokens; t += 4, at += 4 * scores.stride) {
      max = hn::Max(max,
                    hn::Max(hn::Load(d, at), hn::Load(d, at + scores.stride)));
      max2 = hn::Max(max2, hn::Max(hn::Load(d, at + 2 * scores.stride),
                                   hn::Load(d, at + 3 * scores.stride)));
    }
    for (; t < tokens; ++t, at += scores.stride) {
      max = hn::Max(max, hn::Load(d, at));
    }
    max = hn::Max(max, max2);
    // A query that has seen nothing keeps -inf, but is not subtracted: -inf
    // minus -inf is NaN.
    const Vf base = hn::IfThenZeroElse(hn::Eq(max, none), max);
    const Vf rescale = ExpNonPositive(d, hn::Sub(old_max, base));
    Vf sum = hn::Zero(d);
    for (t = 0; t < tokens; ++t) {
      float* p = scores.row(t) + i;
      const Vf e = ExpNonPositive(d, hn::Sub(hn::Load(d, p), base));
      hn::Store(e, d, p);
      sum = hn::Add(sum, e);
    }
    hn::Store(max, d, state.max + i);
    hn::Store(rescale, d, state.rescale + i);
    hn::Store(hn::MulAdd(hn::Load(d, state.sum + i), rescale, sum), d,
              state.sum + i);
  }
}

// O = accumulator / sum (E9), LSE (E7); 0 and -inf for a query that saw
// nothing.
void WriteOutput(const ForwardArgs& args, const LaneRows& lanes, int64_t b,
                 const Softmax& state, Tile acc) {
  const F32 d;
  const int64_t dim = args.problem.value_dim;
  for (int64_t lane = 0; lane < lanes.lanes(); ++lane) {
    const float sum = state.sum[lane];
    const int64_t q_row = lanes.q_row(lane);
    const int64_t head = lanes.head(lane);
    if (args.lse) {
      RowAt(args.lse, b, head)[q_row] =
          sum == 0 ? -kInf : state.max[lane] + std::log(sum);
    }
    if (!args.o) continue;
    float* row = acc.row(lane);
    for (int64_t i = 0; i < dim; i += kLanes) {
      const Vf o = sum == 0 ? hn::Zero(d)
                            : hn::Div(hn::Load(d, row + i), hn::Set(d, sum));
      hn::Store(o, d, row + i);
    }
    StoreRow(row, 1.0f, dim, args.o.dtype, RowAt(args.o, b, q_row, head));
  }
}

void ForwardBlock(const ForwardArgs& args, const FlashTask& task,
                  Scratch& scratch) {
  const Problem& p = args.problem;
  const int64_t b = task.b;
  scratch.Begin();
  scratch.sequence.Reset(p, b);
  const LaneRows lanes(scratch, task.head, task.heads, task.first, task.count);
  const int64_t width = RoundUpToLanes(lanes.lanes());
  const int64_t kv_head = task.head / p.group();

  const Tile q = TakeTile(scratch, p.head_dim + 3, width);
  const Tile k = TakeTile(scratch, kTileTokens, p.head_dim);
  const Tile v = TakeTile(scratch, kTileTokens, p.value_dim);
  const Tile scores = TakeTile(scratch, kTileTokens, width);
  const Tile temporary = TakeTile(scratch, p.bias ? kTileTokens : 0, width);
  const Tile acc = TakeTile(scratch, lanes.lanes(), p.value_dim);
  const Softmax state{scratch.Take(width), scratch.Take(width),
                      scratch.Take(width)};
  std::fill(state.max, state.max + width, -kInf);
  std::fill(state.sum, state.sum + width, 0.0f);

  PackColumns(
      lanes.lanes(), p.head_dim, p.q.dtype,
      [&](int64_t lane) { return lanes.RowOf(p.q, lane); }, q);

  TileWalk walk(scratch.sequence, task.first, task.first + task.count - 1);
  bool first = true;
  while (const int64_t tokens = walk.Next(&scratch.pieces)) {
    if (!Proceed(p)) return;
    PackKv(scratch, &KvSegment::k, kv_head, p.head_dim, k);
    // (E1), (E2), (E21)
    Gemm<AOrder::kRowMajor>(tokens, width, p.head_dim, k.data, k.stride, q.data,
                            q.stride, scores.data, scores.stride,
                            {.factor = p.scale});
    SaturateScores(p.scale, tokens, width, scores);
    if (p.softcap) Softcap(*p.softcap, tokens, width, scores, nullptr);
    if (p.bias) lanes.AddBias(scores, temporary, tokens);
    lanes.ApplyMask(scores);
    UpdateSoftmax(tokens, width, scores, state);
    if (args.o) {
      PackKv(scratch, &KvSegment::v, kv_head, p.value_dim, v);  // (E9)
      Gemm<AOrder::kColumnMajor>(
          lanes.lanes(), RoundUpToLanes(p.value_dim), tokens, scores.data,
          scores.stride, v.data, v.stride, acc.data, acc.stride,
          {.row_scale = first ? nullptr : state.rescale});
    }
    first = false;
  }
  WriteOutput(args, lanes, b, state, acc);
}

}  // namespace

void RunForwardTask(const ForwardArgs& args, const FlashTask& task,
                    Scratch& scratch) {
  ForwardBlock(args, task, scratch);
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnd {

HWY_EXPORT(RunForwardTask);
HWY_EXPORT(TargetName);

void RunFlashForward(const ForwardArgs& args, const FlashTask& task,
                     Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(RunForwardTask)(args, task, scratch);
}

const char* FlashTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace attnd
#endif  // HWY_ONCE
