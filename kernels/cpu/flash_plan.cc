#include "kernels/cpu/flash_plan.h"

#include <algorithm>

namespace attnd::cpu {

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

}  // namespace attnd::cpu
