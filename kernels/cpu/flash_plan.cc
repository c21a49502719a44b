#include "kernels/cpu/flash_plan.h"

#include <algorithm>
#include <iterator>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/tile.h"

namespace attnd {
namespace {

using Kind = FlashTask::Kind;

// A wave ends when it has as much memory, in floats, and as many tasks.
constexpr int64_t kWaveFloats = 16 << 20, kWaveTasks = 64;
// Columns of a task at least, if it shares its rows' columns with others. Of a
// few queries, whose tasks wait for memory, fewer are worth a task.
constexpr int64_t kPartColumns = 1024, kFewQueriesColumns = 256;
// Lanes and kv heads of a task that takes several kv heads.
constexpr int64_t kFewQueries = 8, kMostKvHeads = 16;
// A sequence of fewer tasks has its columns shared out, among about so many.
constexpr int64_t kFewTasks = 16, kManyTasks = 64;
// Slabs that a sequence has, over all kv heads: the most, and however much
// memory they take; and the memory, in floats, that they take beyond that.
constexpr int64_t kMostSlabs = 32, kLeastSlabs = 4;
constexpr int64_t kSlabFloats = 64 << 20;
// Blocks of lanes that make it worth packing what they all read beforehand.
constexpr int64_t kBlocksToPackFor = 3;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of at most `most` that cover `tokens`: equal ones end together.
int64_t EvenBlock(int64_t tokens, int64_t most) {
  const int64_t even = CeilDiv(tokens, CeilDiv(tokens, most));
  return std::min(most, CeilDiv(even, 16) * 16);
}

// Lane tokens of a task, for `heads` heads of `tokens` each. Long blocks read
// the stream side less often, shorter ones give more tasks to share out.
int64_t BlockTokens(int64_t tokens, int64_t heads, int64_t enough_tasks) {
  const bool few = heads * CeilDiv(tokens, kMaxLaneTokens) < enough_tasks;
  return EvenBlock(tokens, few ? kMaxLaneTokens / 2 : kMaxLaneTokens);
}

// Calls block(first, count) for blocks of `size` that cover [0, tokens).
template <class Block>
void ForEachBlock(int64_t tokens, int64_t size, Block block) {
  for (int64_t first = 0; first < tokens; first += size) {
    block(first, std::min(size, tokens - first));
  }
}

// Adds tasks wave by wave.
class Planner {
 public:
  enum Turn { kPack, kCompute, kFinish };

  explicit Planner(FlashPlan* plan) : plan_(*plan) {
    plan_.waves.emplace_back();
  }

  // The next tasks share so much memory.
  void Begin(int64_t floats) {
    if (wave().floats + floats > kWaveFloats &&
        std::ssize(wave().turns[kCompute]) >= kWaveTasks) {
      plan_.waves.emplace_back();
    }
    offset_ = wave().floats;
    wave().floats += CeilDiv(floats, 16) * 16;
  }
  void Add(Turn turn, FlashTask task) {
    task.offset += offset_;
    if (task.packed_offset >= 0) task.packed_offset += offset_;
    wave().turns[turn].push_back(task);
  }
  void End() {
    for (FlashWave& wave : plan_.waves) {
      for (std::vector<FlashTask>& tasks : wave.turns) {
        std::stable_sort(tasks.begin(), tasks.end(),
                         [](const FlashTask& a, const FlashTask& b) {
                           return a.flops > b.flops;
                         });
      }
    }
  }

 private:
  FlashWave& wave() { return plan_.waves.back(); }

  FlashPlan& plan_;
  int64_t offset_ = 0;
};

// Of a forward task's part: O, and the softmax's maximum and sum.
int64_t PartFloats(const Problem& p, int64_t lanes) {
  return lanes * TileStride(p.value_dim) + 2 * (CeilDiv(lanes, 16) * 16);
}

// Blocks of q rows. A few rows leave lanes empty, which more q heads of the
// same kv head then fill: they share K and V.
struct RowBlocks {
  int64_t size;      // rows
  int64_t heads;     // q heads
  int64_t kv_heads;  // whose tiles take turns
  int64_t tasks;     // of the sequence, unless columns are shared out
  int64_t part_columns;
};
RowBlocks RowTasks(const Problem& p, int64_t q_len) {
  RowBlocks blocks;
  blocks.size = BlockTokens(q_len, p.q_heads, kManyTasks);
  const int64_t rows = std::min(blocks.size, q_len);
  blocks.heads = std::clamp<int64_t>(kMaxLaneTokens / 2 / rows, 1, p.group());
  const bool few = p.group() * q_len <= kFewQueries;
  blocks.kv_heads = few ? std::min(p.kv_heads, kMostKvHeads) : 1;
  blocks.part_columns = few ? kFewQueriesColumns : kPartColumns;
  blocks.tasks = CeilDiv(q_len, blocks.size) *
                 CeilDiv(p.kv_heads, blocks.kv_heads) *
                 CeilDiv(p.group(), blocks.heads);
  return blocks;
}

// Calls add(task) for the tasks of q rows [first, first + count) of the kv
// heads from kv_head on, each block's parts in turn, with offsets from
// task.offset on, and returns the next offset.
template <class Add>
int64_t ForEachRowTask(const Sequence& sequence, const RowBlocks& blocks,
                       FlashTask task, int64_t kv_head, int64_t first,
                       int64_t count, Add add) {
  const Problem& p = sequence.problem();
  const int64_t columns = sequence.Columns(first, first + count - 1);
  const int64_t parts =
      blocks.tasks >= kFewTasks
          ? 1
          : std::clamp<int64_t>(columns / blocks.part_columns, 1,
                                CeilDiv(kManyTasks, blocks.tasks));
  // Whole tiles.
  const int64_t part =
      std::max<int64_t>(1, CeilDiv(CeilDiv(columns, parts), kTileTokens)) *
      kTileTokens;
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

// Calls add(first, count, flops) for the packing tasks of `tokens` rows.
template <class Add>
void ForEachPackTask(const Problem& p, int64_t tokens, Add add) {
  ForEachBlock(tokens, kPackTokens, [&](int64_t first, int64_t count) {
    add(first, count, static_cast<double>(count * (p.head_dim + p.value_dim)));
  });
}

// What K and V of a kv head take, packed.
int64_t PackedKvFloats(const Problem& p, int64_t kv_len) {
  return (kv_len + 1) * (PackedFloats(p.dtype(), p.head_dim) +
                         PackedFloats(p.dtype(), p.value_dim));
}

// Tasks of a sequence's q rows, and of packing what all of them read.
void PlanRows(const Sequence& sequence, FlashTask task, Planner* planner) {
  const Problem& p = sequence.problem();
  const int64_t kv_len = KvLen(p, task.b);
  const RowBlocks blocks = RowTasks(p, sequence.q_len());
  const bool pack =
      blocks.kv_heads == 1 && blocks.tasks >= kBlocksToPackFor * p.kv_heads;
  const int64_t packed = pack ? PackedKvFloats(p, kv_len) : 0;
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
    planner->Begin(for_each([](const FlashTask&) {}));
    if (pack) {
      task.packed_offset = 0;
      FlashTask kv_task = task;
      kv_task.kind = Kind::kPackKv;
      kv_task.head = kv;
      ForEachPackTask(p, kv_len,
                      [&](int64_t first, int64_t count, double flops) {
                        kv_task.first = first;
                        kv_task.count = count;
                        kv_task.flops = flops;
                        planner->Add(Planner::kPack, kv_task);
                      });
    }
    for_each([&](const FlashTask& part) {
      planner->Add(Planner::kCompute, part);
      if (part.parts == 1 || part.part > 0) return;
      FlashTask merge = part;
      merge.kind = Kind::kMerge;
      for (int64_t h = 0; h < part.kv_heads; ++h) {
        planner->Add(Planner::kFinish, merge);
        merge.head += p.group();
        merge.offset += part.parts * part.part_floats;
      }
    });
  }
}

// Floats that one slab of all heads takes at most.
double SlabFloats(const Problem& p, int64_t q_len) {
  return static_cast<double>(p.q_heads) * static_cast<double>(q_len) *
         static_cast<double>(SlabStride(p));
}

// Columns across the lanes at a time. With larger dims than these, tiles of the
// most lanes would not stay in the cache.
int64_t SlabBlock(const Problem& p, int64_t kv_len) {
  constexpr int64_t kSmallDims = 160;
  return p.head_dim + p.value_dim > kSmallDims
             ? EvenBlock(kv_len, kMaxLaneTokens / 2)
             : BlockTokens(kv_len, p.kv_heads, kMostSlabs);
}

// Slabs of a kv head, if there are enough blocks.
int64_t SlabCount(const Problem& p, int64_t q_len) {
  const double fit = kSlabFloats / std::max(1.0, SlabFloats(p, q_len));
  return static_cast<int64_t>(std::clamp<double>(
      fit, static_cast<double>(CeilDiv(kLeastSlabs, p.kv_heads)),
      static_cast<double>(CeilDiv(kMostSlabs, p.kv_heads))));
}

// Appends the slabs of a kv head and returns what they take, in floats.
int64_t CutSlabs(const Sequence& sequence, int64_t block, bool sums,
                 std::vector<Piece>* pieces, std::vector<Slab>* slabs) {
  const Problem& p = sequence.problem();
  const int64_t kv_len = KvLen(p, sequence.b());
  const int64_t blocks = CeilDiv(kv_len, block);
  const int64_t size =
      block * CeilDiv(blocks, std::min(blocks, SlabCount(p, sequence.q_len())));
  int64_t floats = 0;
  ForEachBlock(kv_len, size, [&](int64_t first, int64_t count) {
    sequence.Pieces(first, count, pieces);
    Interval rows = sequence.RowsThatSee(*pieces);
    if (rows.empty()) rows = {0, 0};
    rows.lo -= rows.lo % 2;  // two rows may share a word
    slabs->push_back({{first, first + count}, rows, floats});
    if (sums) floats += p.group() * rows.size() * SlabStride(p);
  });
  return floats;
}

// Slabs of columns over all rows and q heads that see them, before them the
// packing of those rows, after them dQ.
void PlanSlabs(const Sequence& sequence, FlashTask task, bool dq, bool dkv,
               std::vector<Piece>* pieces, FlashPlan* plan, Planner* planner) {
  const Problem& p = sequence.problem();
  const int64_t kv_len = KvLen(p, task.b);
  task.first_slab = static_cast<int64_t>(plan->slabs.size());
  int64_t slab_floats = 0;
  if (kv_len > 0) {
    task.count = SlabBlock(p, kv_len);
    slab_floats = CutSlabs(sequence, task.count, dq, pieces, &plan->slabs);
  }
  task.parts = static_cast<int64_t>(plan->slabs.size()) - task.first_slab;
  if (!dkv && !dq) return;
  const int64_t row_floats = PackedRowsFloats(p, sequence.q_len());
  task.packed_offset = 0;
  task.offset = p.group() * row_floats;
  for (int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
    planner->Begin(task.offset + slab_floats);
    task.kind = Kind::kSlab;
    task.head = kv_head;
    task.heads = p.group();
    for (task.part = 0; task.part < task.parts; ++task.part) {
      const Slab& slab = plan->slabs[task.first_slab + task.part];
      task.flops = (4.0 * (p.head_dim + p.value_dim) + 2.0 * p.head_dim) *
                   static_cast<double>(slab.columns.size()) *
                   static_cast<double>(slab.rows.size()) * p.group();
      planner->Add(Planner::kCompute, task);
    }
    FlashTask rows = task;
    for (int64_t g = 0; g < p.group(); ++g) {
      rows.head = kv_head * p.group() + g;
      const auto add = [&](Kind kind, Planner::Turn turn, int64_t times) {
        rows.kind = kind;
        ForEachPackTask(p, sequence.q_len(),
                        [&](int64_t first, int64_t count, double flops) {
                          rows.first = first;
                          rows.count = count;
                          rows.flops = flops * times;
                          planner->Add(turn, rows);
                        });
      };
      rows.packed_offset = g * row_floats;
      if (task.parts > 0) add(Kind::kPackQ, Planner::kPack, 1);
      rows.packed_offset = -1;
      // A single slab's task sums up too.
      if (dq && task.parts != 1) add(Kind::kSum, Planner::kFinish, task.parts);
    }
  }
}

}  // namespace

bool HasOutputs(Op op, const Problem& p) {
  if (p.batch == 0 || p.q_heads == 0) return false;
  if (p.q_len > 0) return true;
  return op == Op::kBackward &&
         std::any_of(p.kv.begin(), p.kv.end(),
                     [](const KvSegment& s) { return s.len > 0; });
}

int64_t FlashPlan::workspace_floats() const {
  int64_t floats = 0;
  for (const FlashWave& wave : waves) floats = std::max(floats, wave.floats);
  return floats;
}

void FlashPlan::Place(float* memory) {
  for (FlashWave& wave : waves) {
    for (std::vector<FlashTask>& tasks : wave.turns) {
      for (FlashTask& task : tasks) {
        task.workspace = memory + task.offset;
        if (task.packed_offset >= 0) task.packed = memory + task.packed_offset;
      }
    }
  }
}

FlashPlan PlanForward(absl::Span<const ForwardArgs> group) {
  FlashPlan plan;
  Planner planner(&plan);
  Sequence sequence;
  for (size_t i = 0; i < group.size(); ++i) {
    const Problem& p = group[i].problem;
    if (!HasOutputs(Op::kForward, p)) continue;
    FlashTask task;
    task.problem = static_cast<int64_t>(i);
    for (task.b = 0; task.b < p.batch; ++task.b) {
      sequence.Reset(p, task.b);
      if (sequence.q_len() > 0) PlanRows(sequence, task, &planner);
      if (sequence.q_len() == p.q_len) continue;
      FlashTask empty = task;
      empty.kind = Kind::kEmpty;
      planner.Add(Planner::kCompute, empty);
    }
  }
  planner.End();
  return plan;
}

FlashPlan PlanBackward(absl::Span<const BackwardArgs> group) {
  FlashPlan plan;
  Planner planner(&plan);
  std::vector<Piece> pieces;
  Sequence sequence;
  for (size_t i = 0; i < group.size(); ++i) {
    const Problem& p = group[i].problem;
    if (!HasOutputs(Op::kBackward, p)) continue;
    bool dkv = false, padded = false;
    for (const KvSegment& s : p.kv) dkv = dkv || s.dk || s.dv;
    FlashTask task;
    task.problem = static_cast<int64_t>(i);
    for (task.b = 0; task.b < p.batch; ++task.b) {
      sequence.Reset(p, task.b);
      PlanSlabs(sequence, task, static_cast<bool>(group[i].dq), dkv, &pieces,
                &plan, &planner);
      padded = sequence.q_len() < p.q_len || KvLen(p, task.b) < PaddedKvLen(p);
      if (!padded) continue;
      FlashTask empty = task;
      empty.kind = Kind::kEmpty;
      planner.Add(Planner::kCompute, empty);
    }
  }
  planner.End();
  return plan;
}

int64_t FlashScratchBytes(Op op, const Problem& p, int threads) {
  const bool forward = op == Op::kForward;
  const int64_t kv_len = PaddedKvLen(p);
  int64_t tokens = p.q_len;
  for (const KvSegment& s : p.kv) tokens = std::max(tokens, s.len);
  const double blocks =
      2.0 + static_cast<double>(p.q_len + kv_len) / (kMaxLaneTokens / 2);
  const double tasks = (blocks * p.q_heads + kManyTasks) * p.batch;
  // A worker: at most five tiles of lane tokens and one of stream tokens for
  // each of the two dims, and four tiles of scores.
  const double rows = static_cast<double>(tokens) * p.group();
  const int64_t lanes =
      CeilDiv(static_cast<int64_t>(std::min<double>(kMaxLaneTokens, rows)),
              16) *
      16;
  const int64_t stream = std::min(kTileTokens, tokens);
  const int64_t dims = TileStride(p.head_dim) + TileStride(p.value_dim);
  const int64_t worker = std::min<int64_t>(
      Scratch::kCapacity, ((forward ? 2 : 3) * lanes + stream) * dims +
                              4 * stream * TileStride(lanes));
  const auto workers = static_cast<int64_t>(std::min<double>(tasks, threads));
  // What a kv head shares: what is packed, and parts; and of those what a wave
  // holds.
  const double kv_heads = static_cast<double>(std::max<int64_t>(1, p.kv_heads));
  double unit = 0;
  if (forward) {
    unit = static_cast<double>(PackedKvFloats(p, kv_len));
    const bool few_tasks =
        !p.q_lens.empty() ||
        RowTasks(p, std::max<int64_t>(1, p.q_len)).tasks < kFewTasks;
    if (few_tasks && kv_len >= 2 * kFewQueriesColumns) {
      unit +=
          static_cast<double>(kFewTasks + kManyTasks) *
          static_cast<double>(std::max(
              kMostKvHeads * PartFloats(p, kFewQueries), PartFloats(p, lanes)));
    }
  } else if (kv_len > 0) {
    const double one = SlabFloats(p, p.q_len);
    const double most = static_cast<double>(CeilDiv(kMostSlabs, p.kv_heads));
    const double least = static_cast<double>(CeilDiv(kLeastSlabs, p.kv_heads));
    unit = static_cast<double>(PackedRowsFloats(p, p.q_len) * p.group()) +
           std::min({most * one,
                     std::max(static_cast<double>(kSlabFloats), least * one),
                     std::max(1.0, blocks) * one}) /
               kv_heads;
  }
  const double memory = std::min(
      p.batch * kv_heads * unit,
      std::max(static_cast<double>(kWaveFloats) + unit, kWaveTasks * unit));
  const double bytes =
      (static_cast<double>(workers * worker) + memory) * sizeof(float) +
      tasks * sizeof(FlashTask);
  constexpr double kMost = 0x1p62;
  return static_cast<int64_t>(std::min(bytes, kMost));
}

}  // namespace attnd
