#include "kernels/cpu/flash_scratch.h"

#include <algorithm>

#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/plan_builder.h"
#include "kernels/cpu/tile.h"

namespace attnd::cpu {
namespace {

// Lanes of a task at most, whole vectors.
int64_t MostLanes(int64_t tokens) {
  return std::min(kMaxLaneTokens, CeilDiv(tokens, 16) * 16);
}

// What forward takes of a worker's Scratch at most, in floats.
int64_t ForwardWorkerFloats(const Problem& p) {
  const int64_t lanes = MostLanes(p.q_len * p.group());
  const int64_t row = TileStride(lanes);
  const int64_t k = TileStride(p.head_dim), v = TileStride(p.value_dim);
  const int64_t q = std::max((p.head_dim + 3) * row, lanes * k);
  // Tiles of K, V, scores and bias; Q, O and the softmax's state, of a few
  // queries for each kv head, with scores of its own.
  const int64_t kv_heads = lanes <= 16 ? std::min(p.kv_heads, kMostKvHeads) : 1;
  const int64_t head =
      q + lanes * (v + 3) + (lanes <= 16 ? kTileTokens * row : 0);
  return kTileTokens * (k + v + 2 * row) + kv_heads * head;
}

int64_t BackwardWorkerFloats(const Problem& p) {
  const int64_t lanes = MostLanes(PaddedKvLen(p));
  const int64_t row = TileStride(lanes);
  const int64_t k = TileStride(p.head_dim), v = TileStride(p.value_dim);
  // K and V across the lanes; K along them and both gradients; tiles of scores,
  // dP, dS and softcap's derivative; Q, dO and dQ.
  return (p.head_dim + p.value_dim + 6) * row + lanes * (2 * k + v) +
         kTileTokens * (4 * row + k) + PackedRowsFloats(p, kTileTokens);
}

// Tasks of the plan at most.
double Tasks(const Problem& p) {
  constexpr double kShared = 128;  // beyond the blocks, parts of them
  constexpr int64_t kLeastTokens = kMaxLaneTokens / 2;
  const double blocks =
      2.0 + static_cast<double>(p.q_len + PaddedKvLen(p)) / kLeastTokens;
  return (blocks * static_cast<double>(p.q_heads) + kShared) *
         static_cast<double>(p.batch);
}

// What a wave of the problem's takes at most, in floats.
double WaveFloats(Op op, const Problem& p, int threads) {
  const int64_t enough_tasks = PlanBuilder::EnoughTasks(threads);
  double all = 0, most = 0;
  int64_t least_tasks = enough_tasks;
  const auto add = [&](int64_t b, int64_t sequences) {
    const int64_t q_len = QLen(p, b), kv_len = KvLen(p, b);
    const PlanUnits units = op == Op::kForward
                                ? ForwardUnits(p, q_len, kv_len)
                                : BackwardUnits(p, q_len, kv_len);
    if (units.count == 0) return;
    all += static_cast<double>(sequences * units.count) * units.floats;
    most = std::max(most, units.floats);
    least_tasks = std::min(least_tasks, units.tasks);
  };
  const bool equal = p.q_lens.empty() &&
                     std::all_of(p.kv.begin(), p.kv.end(),
                                 [](const auto& s) { return s.lens.empty(); });
  if (equal) {
    add(0, p.batch);
  } else {
    for (int64_t b = 0; b < p.batch; ++b) add(b, 1);
  }
  // A wave may go on until it has enough tasks.
  const int64_t units = CeilDiv(enough_tasks, least_tasks);
  return std::min(
      all, std::max<double>(kWaveFloats, static_cast<double>(units) * most));
}

}  // namespace

int64_t FlashScratchBytes(Op op, const Problem& p, int threads) {
  if (!HasOutputs(op, p)) return 0;
  const double tasks = Tasks(p);
  const int64_t worker = std::min(
      Scratch::kCapacity,
      op == Op::kForward ? ForwardWorkerFloats(p) : BackwardWorkerFloats(p));
  const double floats =
      std::min<double>(tasks, threads) * static_cast<double>(worker) +
      WaveFloats(op, p, threads);
  const double bytes = floats * sizeof(float) + tasks * sizeof(FlashTask);
  constexpr double kMost = 0x1p62;
  return static_cast<int64_t>(std::min(bytes, kMost));
}

}  // namespace attnd::cpu
