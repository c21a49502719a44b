#ifndef ATTND_KERNELS_CPU_PLAN_BUILDER_H_
#define ATTND_KERNELS_CPU_PLAN_BUILDER_H_

// What the plans of forward and of backward are made with.

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/tile.h"

namespace attnd::cpu {

// Memory of a wave, in floats, unless it would be too few tasks.
inline constexpr int64_t kWaveFloats = 16 << 20;
// KV heads of a task of a few queries at most.
inline constexpr int64_t kMostKvHeads = 16;

inline constexpr int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Blocks of at most `most` that cover `tokens`: equal ones end together.
inline int64_t EvenBlock(int64_t tokens, int64_t most) {
  const int64_t even = CeilDiv(tokens, CeilDiv(tokens, most));
  return std::min(most, CeilDiv(even, 16) * 16);
}

// Lane tokens at a time, at most, where shorter blocks are wanted.
inline constexpr int64_t kFewLaneTokens = 128;

// Lane tokens of a task, for `heads` heads of `tokens` each. Long blocks read
// the stream side less often, shorter ones give more tasks to share out.
inline int64_t BlockTokens(int64_t tokens, int64_t heads,
                           int64_t enough_tasks) {
  const bool few = heads * CeilDiv(tokens, kMaxLaneTokens) < enough_tasks;
  return EvenBlock(tokens, few ? kFewLaneTokens : kMaxLaneTokens);
}

// Whether to pack shared operands first, which takes `floats` floats: at least
// three blocks of lanes read them, they fit a wave, and padding stays below
// half of what there is to pack.
inline bool PacksFirst(const Problem& p, int64_t blocks, int64_t floats) {
  constexpr int64_t kEnoughBlocks = 3;
  const int64_t packed = PackedFloats(p.dtype(), p.head_dim) +
                         PackedFloats(p.dtype(), p.value_dim);
  return blocks >= kEnoughBlocks && floats <= kWaveFloats &&
         2 * packed <= 3 * (p.head_dim + p.value_dim);
}

// Calls block(first, count) for blocks of `size` that cover [0, tokens).
template <class Block>
void ForEachBlock(int64_t tokens, int64_t size, Block block) {
  for (int64_t first = 0; first < tokens; first += size) {
    block(first, std::min(size, tokens - first));
  }
}

// Calls add(first, count, flops) for the packing tasks of `tokens` rows.
template <class Add>
void ForEachPackTask(const Problem& p, int64_t tokens, Add add) {
  ForEachBlock(tokens, kPackTokens, [&](int64_t first, int64_t count) {
    add(first, count, static_cast<double>(count * (p.head_dim + p.value_dim)));
  });
}

// Adds tasks wave by wave.
class PlanBuilder {
 public:
  enum Turn { kPack, kCompute, kFinish };

  // Tasks that keep `threads` busy for a wave.
  static int64_t EnoughTasks(int threads) { return 4 * int64_t{threads}; }

  explicit PlanBuilder(int threads) : enough_tasks_(EnoughTasks(threads)) {
    plan_.waves.emplace_back();
  }

  // The tasks that are added from here to the next Begin are a unit: they share
  // so much memory, in floats, and run in one wave.
  void Begin(int64_t floats) {
    if (wave().floats + floats > kWaveFloats &&
        static_cast<int64_t>(wave().turns[kCompute].size()) >= enough_tasks_) {
      plan_.waves.emplace_back();
    }
    offset_ = wave().floats;
    wave().floats += CeilDiv(floats, 16) * 16;
  }

  // The task's offsets are in its unit's memory.
  void Add(Turn turn, FlashTask task) {
    task.offset += offset_;
    if (task.packed_offset >= 0) task.packed_offset += offset_;
    wave().turns[turn].push_back(task);
  }

  FlashPlan Finish();

  std::vector<Slab>& slabs() { return plan_.slabs; }

 private:
  FlashWave& wave() { return plan_.waves.back(); }

  const int64_t enough_tasks_;
  FlashPlan plan_;
  int64_t offset_ = 0;
};

// The units of one sequence, whatever its mask: how many, what each takes at
// most, in floats, and the tasks that it has at least.
struct PlanUnits {
  int64_t count = 0;
  double floats = 0;
  int64_t tasks = 1;
};
PlanUnits ForwardUnits(const Problem& p, int64_t q_len, int64_t kv_len);
PlanUnits BackwardUnits(const Problem& p, int64_t q_len, int64_t kv_len);

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_PLAN_BUILDER_H_
