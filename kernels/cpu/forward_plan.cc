#include <algorithm>

#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/plan_builder.h"

namespace attnd::cpu {
namespace {

using Kind = FlashTask::Kind;

// Fewest columns per task when a row's columns are split among several; fewer
// for decode (a few queries), which memory bounds.
constexpr int64_t kPartColumns = 1024, kFewQueriesColumns = 256;
// Lanes of a task that takes several kv heads.
constexpr int64_t kFewQueries = 8;
// A sequence of fewer tasks has its columns shared out, among about so many;
// among fewer of a few queries, as reading ahead begins anew in each.
constexpr int64_t kFewTasks = 16, kManyTasks = 64, kFewQueriesTasks = 32;

// Of a task's part: O, and the softmax's maximum and sum.
int64_t PartFloats(const Problem& p, int64_t lanes) {
  return lanes * TileStride(p.value_dim) + 2 * (CeilDiv(lanes, 16) * 16);
}

// What K and V of a kv head take, packed.
int64_t PackedKvFloats(const Problem& p, int64_t kv_len) {
  return (kv_len + 1) * (PackedFloats(p.dtype(), p.head_dim) +
                         PackedFloats(p.dtype(), p.value_dim));
}

// Whether every tile of K and V can be read where it lies.
bool KvLiesAsTiles(const Problem& p) {
  return p.kv.size() == 1 && LiesAsTile(p.kv[0].k, p.head_dim) &&
         LiesAsTile(p.kv[0].v, p.value_dim);
}

// Blocks of q rows. A few rows leave lanes empty, which more q heads of the
// same kv head then fill: they share K and V.
struct RowBlocks {
  int64_t size;      // rows
  int64_t heads;     // q heads
  int64_t kv_heads;  // whose tiles take turns
  int64_t tasks;     // of the sequence, unless columns are shared out
  int64_t part_columns, most_parts;
  bool pack;  // K and V beforehand

  // `whole`: of the sequence, or of what it is a part of. Nothing else decides.
  RowBlocks(const Problem& p, const Whole& whole) {
    const int64_t q_len = whole.q_len;
    size = BlockTokens(q_len, whole.q_heads, kManyTasks);
    heads = std::clamp<int64_t>(kMaxLaneTokens / 2 / std::min(size, q_len), 1,
                                p.group());
    const bool few = p.group() * q_len <= kFewQueries;
    kv_heads = few ? std::min(whole.kv_heads, kMostKvHeads) : 1;
    tasks = CeilDiv(q_len, size) * CeilDiv(whole.kv_heads, kv_heads) *
            CeilDiv(p.group(), heads);
    part_columns = few ? kFewQueriesColumns : kPartColumns;
    most_parts = CeilDiv(few ? kFewQueriesTasks : kManyTasks, tasks);
    pack = kv_heads == 1 && !KvLiesAsTiles(p) &&
           PacksFirst(p, tasks / std::max<int64_t>(1, whole.kv_heads),
                      PackedKvFloats(p, whole.kv_len));
  }

  // Tasks that share the columns of a block of rows.
  int64_t Parts(int64_t columns) const {
    if (tasks >= kFewTasks) return 1;
    return std::clamp<int64_t>(columns / part_columns, 1, most_parts);
  }
};

// Calls add(task) for the tasks of q rows [first, first + count) of the kv
// heads from kv_head on, each block's parts in turn, with offsets from
// task.offset on, and returns the next offset.
template <class Add>
int64_t ForEachRowTask(const Sequence& sequence, const RowBlocks& blocks,
                       FlashTask task, int64_t kv_head, int64_t first,
                       int64_t count, Add add) {
  const Problem& p = sequence.problem();
  const int64_t columns = sequence.Columns(first, first + count - 1);
  // Whole tiles.
  const int64_t tiles =
      CeilDiv(CeilDiv(columns, blocks.Parts(columns)), kTileTokens);
  const int64_t part = std::max<int64_t>(1, tiles) * kTileTokens;
  task.first = first;
  task.count = count;
  task.parts = std::max<int64_t>(1, CeilDiv(columns, part));
  for (int64_t g = 0; g < p.group(); g += blocks.heads) {
    task.head = kv_head * p.group() + g;
    task.heads = std::min(blocks.heads, p.group() - g);
    task.part_floats = PartFloats(p, task.heads * count);
    for (task.part = 0; task.part < task.parts; ++task.part) {
      task.columns = {task.part * part,
                      std::min(columns, (task.part + 1) * part)};
      task.flops = 2.0 * static_cast<double>(p.head_dim + p.value_dim) *
                   static_cast<double>(task.columns.size()) *
                   static_cast<double>(task.kv_heads * task.heads * count);
      add(task);
    }
    if (task.parts > 1) {
      task.offset += task.kv_heads * task.parts * task.part_floats;
    }
  }
  return task.offset;
}

void PlanPacking(const Problem& p, FlashTask task, int64_t kv_head,
                 int64_t kv_len, PlanBuilder* builder) {
  task.kind = Kind::kPackKv;
  task.head = kv_head;
  ForEachPackTask(p, kv_len, [&](int64_t first, int64_t count, double flops) {
    task.first = first;
    task.count = count;
    task.flops = flops;
    builder->Add(PlanBuilder::kPack, task);
  });
}

// Puts the parts together of which this is the first.
void PlanMerge(const Problem& p, FlashTask part, PlanBuilder* builder) {
  part.kind = Kind::kMerge;
  for (int64_t h = 0; h < part.kv_heads; ++h) {
    builder->Add(PlanBuilder::kFinish, part);
    part.head += p.group();
    part.offset += part.parts * part.part_floats;
  }
}

// Tasks of a sequence's q rows, and of packing what all of them read.
void PlanRows(const Sequence& sequence, FlashTask task, PlanBuilder* builder) {
  const Problem& p = sequence.problem();
  const int64_t kv_len = KvLen(p, task.b);
  const RowBlocks blocks(p, WholeOf(p, task.b));
  const int64_t packed = blocks.pack ? PackedKvFloats(p, kv_len) : 0;
  if (blocks.pack) task.packed_offset = 0;
  for (int64_t kv = 0; kv < p.kv_heads; kv += blocks.kv_heads) {
    task.kv_heads = std::min(blocks.kv_heads, p.kv_heads - kv);
    const auto for_each = [&](auto add) {
      task.offset = CeilDiv(packed, 16) * 16;
      ForEachBlock(
          sequence.q_len(), blocks.size, [&](int64_t first, int64_t count) {
            task.offset =
                ForEachRowTask(sequence, blocks, task, kv, first, count, add);
          });
      return task.offset;
    };
    builder->Begin(for_each([](const FlashTask&) {}));
    if (blocks.pack) PlanPacking(p, task, kv, kv_len, builder);
    for_each([&](const FlashTask& part) {
      builder->Add(PlanBuilder::kCompute, part);
      if (part.parts > 1 && part.part == 0) PlanMerge(p, part, builder);
    });
  }
}

}  // namespace

PlanUnits ForwardUnits(const Problem& p, int64_t q_len, int64_t kv_len) {
  if (q_len == 0 || p.kv_heads == 0) return {};
  const RowBlocks blocks(p, WholeOf(p, q_len, kv_len));
  PlanUnits units;
  units.count = CeilDiv(p.kv_heads, blocks.kv_heads);
  units.tasks = CeilDiv(q_len, blocks.size) * CeilDiv(p.group(), blocks.heads);
  if (blocks.pack) units.floats += PackedKvFloats(p, kv_len) + 16;
  const int64_t parts = blocks.Parts(kv_len);
  if (parts > 1) {
    const int64_t lanes = blocks.heads * std::min(blocks.size, q_len);
    units.floats += static_cast<double>(units.tasks * parts) *
                    static_cast<double>(blocks.kv_heads * PartFloats(p, lanes));
  }
  return units;
}

int64_t ForwardBlockRows(const Problem& p, int64_t q_len) {
  if (q_len == 0) return 1;
  return RowBlocks(p, WholeOf(p, q_len, /*kv_len=*/0)).size;
}

ForwardRows LastForwardRows(const Problem& p, int64_t q_len, int64_t head) {
  const RowBlocks blocks(p, WholeOf(p, q_len, /*kv_len=*/0));
  const int64_t first = (q_len - 1) / blocks.size * blocks.size;
  const int64_t g = head % p.group();
  const int64_t heads =
      std::min(blocks.heads, p.group() - g / blocks.heads * blocks.heads);
  return {first, heads * (q_len - first)};
}

FlashPlan PlanForward(absl::Span<const ForwardArgs> group, int threads) {
  PlanBuilder builder(threads);
  Sequence sequence;
  for (size_t i = 0; i < group.size(); ++i) {
    const Problem& p = group[i].problem;
    if (!HasOutputs(Op::kForward, p)) continue;
    FlashTask task;
    task.problem = static_cast<int64_t>(i);
    for (task.b = 0; task.b < p.batch; ++task.b) {
      sequence.Reset(p, task.b);
      if (sequence.q_len() > 0) PlanRows(sequence, task, &builder);
      if (sequence.q_len() == p.q_len) continue;
      FlashTask empty = task;
      empty.kind = Kind::kEmpty;
      builder.Add(PlanBuilder::kCompute, empty);
    }
  }
  return builder.Finish();
}

}  // namespace attnd::cpu
