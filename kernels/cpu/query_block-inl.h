// A block of queries in forward, whatever its K and V lie in. Compiled once per
// target.
#if defined(ATTND_KERNELS_CPU_QUERY_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_QUERY_BLOCK_INL_H_
#undef ATTND_KERNELS_CPU_QUERY_BLOCK_INL_H_
#else
#define ATTND_KERNELS_CPU_QUERY_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/softmax-inl.h"
#include "kernels/row_merge.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {

// to = factor * to + before_factor * before, of `dim` elements. Of the two
// products the one that an fma takes is not rounded: it is that of what came
// before, which mostly counts for more.
HWY_INLINE void MergeRows(float factor, float before_factor,
                          const float* before, int64_t dim, float* to) {
  const F32 d;
  const Vf own = hn::Set(d, factor), other = hn::Set(d, before_factor);
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    const Vf x = hn::Mul(own, hn::Load(d, to + i));
    hn::Store(hn::MulAdd(other, hn::LoadU(d, before + i), x), d, to + i);
  }
  for (; i < dim; ++i) to[i] = factor * to[i] + before_factor * before[i];
}

// O = accumulator / sum (E9), LSE (E7); 0 and -inf for a query that saw
// nothing, and both merged with what came before, if anything did. What a
// query's sum becomes is then undefined.
HWY_INLINE void WriteOutput(const ForwardArgs& args, const LaneRows& lanes,
                            const Softmax& state, Tile acc) {
  const F32 d;
  const int64_t b = lanes.b();
  const int64_t dim = args.problem.value_dim;
  const auto merge_of = [&](int64_t lane, int64_t head, int64_t q_row) {
    const float sum = state.sum[lane];
    if (args.before.lse) {
      return MergeRow(state.max[lane], sum,
                      RowAt(args.before.lse, b, head)[q_row]);
    }
    return RowMerge{sum == 0 ? -kInf : state.max[lane] + std::log(sum), 1, 0};
  };
  if (args.lse) {
    lanes.ForEach([&](int64_t lane, int64_t head, int64_t q_row) {
      RowAt(args.lse, b, head)[q_row] = merge_of(lane, head, q_row).lse;
    });
  }
  if (!args.o) return;
  const auto store = [&](int64_t lane, int64_t head, int64_t q_row,
                         float factor) {
    StoreRow(acc.row(lane), factor, dim, args.o.dtype,
             RowAt(args.o, b, q_row, head));
  };
  if (args.before.lse) {
    lanes.ForEach([&](int64_t lane, int64_t head, int64_t q_row) {
      const RowMerge merge = merge_of(lane, head, q_row);
      float* row = acc.row(lane);
      float factor = merge.weight;
      if (state.sum[lane] == 0) {
        std::fill_n(row, dim, 0.0f);
        factor = 1;
      }
      if (RowAt(args.before.lse, b, head)[q_row] != -kInf) {
        MergeRows(factor, merge.weight_before,
                  reinterpret_cast<const float*>(
                      RowAt(args.before.o, b, q_row, head)),
                  dim, row);
        factor = 1;
      }
      store(lane, head, q_row, factor);
    });
    return;
  }
  for (int64_t i = 0; i < lanes.lanes(); i += kLanes) {
    const Vf sum = hn::Load(d, state.sum + i);
    hn::Store(hn::Div(hn::Set(d, 1.0f), sum), d, state.sum + i);
  }
  lanes.ForEach([&](int64_t lane, int64_t head, int64_t q_row) {
    float factor = state.sum[lane];
    if (factor == kInf) {
      std::fill_n(acc.row(lane), dim, 0.0f);
      factor = 1;
    }
    store(lane, head, q_row, factor);
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

// Queries across the lanes, of one kv head: the state that a task keeps while
// K and V stream by.
struct QueryBlock {
  // Takes memory for all but the tiles, [stream, lanes]: scores, and where
  // there is a bias a temporary one.
  QueryBlock(const ForwardArgs& args, const FlashTask& task, Tile scores,
             Tile temporary, Scratch& scratch)
      : args(args),
        task(task),
        scratch(scratch),
        p(args.problem),
        kv_head(task.head / p.group()),
        lanes(scratch, task.head, task.heads, task.first, task.count),
        width(RoundUpToLanes(lanes.lanes())),
        scores(scores),
        temporary(temporary),
        acc(task.parts > 1 ? Partial(args, task, task.part).acc
                           : TakeTile(scratch, lanes.lanes(), p.value_dim)),
        state{scratch.Take(width), scratch.Take(width), scratch.Take(width)} {
    state.Clear(width);
  }

  void CapScores(int64_t rows, int64_t columns, Tile tile) const {
    if (p.softcap) Softcap(*p.softcap, rows, columns, tile, nullptr);
  }
  // (E2), (E21)
  void ChangeScores(int64_t tokens) const {
    CapScores(tokens, width, scores);
    if (p.bias) lanes.AddBias(scores, temporary, tokens);
    lanes.ApplyMask(scores);
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
  const Tile scores;     // then P
  const Tile temporary;  // of the bias
  const Tile acc;        // [lanes, value_dim]
  const Softmax state;
};

// Calls add(task) for each kv head of the task, as one of that head alone.
template <class Add>
HWY_INLINE void ForEachKvHead(const Problem& p, FlashTask task, Add add) {
  for (int64_t kv = 0; kv < task.kv_heads; ++kv) {
    add(task);
    task.head += p.group();
    task.workspace += task.parts * task.part_floats;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_QUERY_BLOCK_INL_H_
