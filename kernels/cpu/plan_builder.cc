#include "kernels/cpu/plan_builder.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace attnd::cpu {

FlashPlan PlanBuilder::Finish() {
  for (FlashWave& wave : plan_.waves) {
    for (std::vector<FlashTask>& tasks : wave.turns) {
      std::stable_sort(tasks.begin(), tasks.end(),
                       [](const FlashTask& a, const FlashTask& b) {
                         return a.flops > b.flops;
                       });
    }
  }
  return std::move(plan_);
}

}  // namespace attnd::cpu
