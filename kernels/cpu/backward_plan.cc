#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/plan_builder.h"

namespace attnd::cpu {
namespace {

using Kind = FlashTask::Kind;

// Slabs that a sequence has, over all kv heads: the most, and however much
// memory they take. A slab has about so many columns at least.
constexpr int64_t kMostSlabs = 32, kLeastSlabs = 4, kSlabColumns = 96;

// What one slab of a kv head takes at most, in floats.
double SlabFloats(const Problem& p, int64_t q_len) {
  return static_cast<double>(p.group()) * static_cast<double>(q_len + 1) *
         static_cast<double>(SlabStride(p));
}

// How a kv head's columns are cut.
struct SlabCut {
  int64_t columns;  // of a slab
  int64_t block;    // of those at a time
  int64_t slabs;
  bool sums;  // several blocks add to dQ
  bool pack;  // Q and dO beforehand

  SlabCut(const Problem& p, int64_t q_len, int64_t kv_len) {
    const int64_t packed = p.group() * PackedRowsFloats(p, q_len);
    columns = CeilDiv(CeilDiv(kv_len, Most(p, q_len, kv_len, packed)), 16) * 16;
    block = EvenBlock(std::min(columns, kv_len), MostLanes(p));
    slabs = CeilDiv(kv_len, columns);
    sums = kv_len > block;
    pack = PacksFirst(p, CeilDiv(kv_len, block), packed);
  }

 private:
  // Slabs at most: a power of two, as threads mostly are, so that the last ones
  // end together.
  static int64_t Most(const Problem& p, int64_t q_len, int64_t kv_len,
                      int64_t packed) {
    const double fit =
        static_cast<double>(kWaveFloats - packed) / SlabFloats(p, q_len);
    const double most = std::clamp<double>(
        fit, static_cast<double>(CeilDiv(kLeastSlabs, p.kv_heads)),
        static_cast<double>(CeilDiv(kMostSlabs, p.kv_heads)));
    return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(
        std::min<double>(most, CeilDiv(kv_len, kSlabColumns)))));
  }

  // Columns across the lanes at a time, at most. With larger dims tiles of the
  // most lanes would not stay in the cache.
  static int64_t MostLanes(const Problem& p) {
    constexpr int64_t kSmallDims = 160;
    return p.head_dim + p.value_dim > kSmallDims ? kFewLaneTokens
                                                 : kMaxLaneTokens;
  }
};

// Appends the slabs of a kv head and returns what their sums take, in floats.
int64_t AppendSlabs(const Sequence& sequence, const SlabCut& cut, bool dq,
                    std::vector<Piece>* pieces, std::vector<Slab>* slabs) {
  const Problem& p = sequence.problem();
  int64_t floats = 0;
  ForEachBlock(KvLen(p, sequence.b()), cut.columns,
               [&](int64_t first, int64_t count) {
                 sequence.Pieces(first, count, pieces);
                 Interval rows = sequence.RowsThatSee(*pieces);
                 if (rows.empty()) rows = {0, 0};
                 rows.lo -= rows.lo % 2;  // two rows may share a word
                 slabs->push_back({{first, first + count}, rows, floats});
                 if (!dq || !cut.sums) return;
                 floats += p.group() * rows.size() * SlabStride(p);
               });
  return floats;
}

// Adds tasks of `kind` for all rows of the kv head's q heads.
void PlanRowTasks(const Sequence& sequence, FlashTask task, Kind kind,
                  PlanBuilder::Turn turn, PlanBuilder* builder) {
  const Problem& p = sequence.problem();
  const int64_t head = task.head * p.group();
  const int64_t times = kind == Kind::kSum ? task.parts : 1;
  task.kind = kind;
  for (int64_t g = 0; g < p.group(); ++g) {
    task.head = head + g;
    ForEachPackTask(p, sequence.q_len(),
                    [&](int64_t first, int64_t count, double flops) {
                      task.first = first;
                      task.count = count;
                      task.flops = flops * static_cast<double>(times);
                      builder->Add(turn, task);
                    });
    if (task.packed_offset >= 0) {
      task.packed_offset += PackedRowsFloats(p, sequence.q_len());
    }
  }
}

// Slabs of columns over all rows and q heads that see them, before them the
// packing of those rows, after them dQ.
void PlanSlabs(const Sequence& sequence, FlashTask task, bool dq,
               std::vector<Piece>* pieces, PlanBuilder* builder) {
  const Problem& p = sequence.problem();
  const SlabCut cut(p, sequence.q_len(), KvLen(p, task.b));
  task.count = cut.block;
  task.first_slab = static_cast<int64_t>(builder->slabs().size());
  const int64_t sums =
      AppendSlabs(sequence, cut, dq, pieces, &builder->slabs());
  task.parts = static_cast<int64_t>(builder->slabs().size()) - task.first_slab;
  if (cut.pack) {
    task.packed_offset = 0;
    task.offset = p.group() * PackedRowsFloats(p, sequence.q_len());
  }
  for (task.head = 0; task.head < p.kv_heads; ++task.head) {
    builder->Begin(task.offset + sums);
    if (cut.pack) {
      PlanRowTasks(sequence, task, Kind::kPackQ, PlanBuilder::kPack, builder);
    }
    FlashTask slab_task = task;
    slab_task.kind = Kind::kSlab;
    slab_task.heads = p.group();
    for (int64_t part = 0; part < task.parts; ++part) {
      const Slab& slab = builder->slabs()[task.first_slab + part];
      slab_task.part = part;
      slab_task.flops = (4.0 * static_cast<double>(p.head_dim + p.value_dim) +
                         2.0 * static_cast<double>(p.head_dim)) *
                        static_cast<double>(slab.columns.size()) *
                        static_cast<double>(slab.rows.size()) *
                        static_cast<double>(p.group());
      builder->Add(PlanBuilder::kCompute, slab_task);
    }
    // A single block's task writes dQ itself.
    if (dq && cut.sums) {
      PlanRowTasks(sequence, task, Kind::kSum, PlanBuilder::kFinish, builder);
    }
  }
}

// dQ = 0: there is nothing to attend to.
void PlanZeros(const Sequence& sequence, FlashTask task, PlanBuilder* builder) {
  task.parts = 0;
  for (task.head = 0; task.head < sequence.problem().kv_heads; ++task.head) {
    PlanRowTasks(sequence, task, Kind::kSum, PlanBuilder::kFinish, builder);
  }
}

}  // namespace

PlanUnits BackwardUnits(const Problem& p, int64_t q_len, int64_t kv_len) {
  if (kv_len == 0 || p.kv_heads == 0) return {};
  const SlabCut cut(p, q_len, kv_len);
  PlanUnits units;
  units.count = p.kv_heads;
  units.tasks = cut.slabs;
  if (cut.pack) {
    units.floats += static_cast<double>(p.group() * PackedRowsFloats(p, q_len));
  }
  if (cut.sums) {
    units.floats += static_cast<double>(cut.slabs) * SlabFloats(p, q_len);
  }
  return units;
}

FlashPlan PlanBackward(absl::Span<const BackwardArgs> group, int threads) {
  PlanBuilder builder(threads);
  std::vector<Piece> pieces;
  Sequence sequence;
  for (size_t i = 0; i < group.size(); ++i) {
    const Problem& p = group[i].problem;
    if (!HasOutputs(Op::kBackward, p)) continue;
    const bool dq = static_cast<bool>(group[i].dq);
    const bool dkv =
        std::any_of(p.kv.begin(), p.kv.end(),
                    [](const KvSegment& s) { return s.dk || s.dv; });
    FlashTask task;
    task.problem = static_cast<int64_t>(i);
    for (task.b = 0; task.b < p.batch; ++task.b) {
      sequence.Reset(p, task.b);
      const int64_t kv_len = KvLen(p, task.b);
      if (kv_len > 0 && (dq || dkv)) {
        PlanSlabs(sequence, task, dq, &pieces, &builder);
      } else if (dq) {
        PlanZeros(sequence, task, &builder);
      }
      if (sequence.q_len() == p.q_len && kv_len == PaddedKvLen(p)) continue;
      FlashTask empty = task;
      empty.kind = Kind::kEmpty;
      builder.Add(PlanBuilder::kCompute, empty);
    }
  }
  return builder.Finish();
}

}  // namespace attnd::cpu
