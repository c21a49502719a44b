#include "kernels/cpu/core_spread.h"

#ifdef __linux__
#include <sched.h>
#endif

namespace attnd::cpu {

#ifdef __linux__

void CoreSpread::Compute(int worker) {
  int core = sched_getcpu();
  if (Taken(core, worker)) {
    Rest(worker);  // where it was before the system moved it is free too
    Move();
    core = sched_getcpu();
  }
  cores_[worker].store(core, std::memory_order_relaxed);
}

// Leaves the core by forbidding it, and all others that are taken, for a
// moment.
void CoreSpread::Move() {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof(all), &all) != 0) return;
  cpu_set_t idle = all;
  for (const std::atomic<int>& core : cores_) {
    const int taken = core.load(std::memory_order_relaxed);
    if (taken != kNone) CPU_CLR(taken, &idle);
  }
  if (CPU_COUNT(&idle) == 0) return;
  if (sched_setaffinity(0, sizeof(idle), &idle) != 0) return;
  sched_setaffinity(0, sizeof(all), &all);
}

#else

void CoreSpread::Compute(int) {}
void CoreSpread::Move() {}

#endif

bool CoreSpread::Taken(int core, int worker) const {
  for (int other = 0; other < worker; ++other) {
    if (cores_[other].load(std::memory_order_relaxed) == core) return true;
  }
  return false;
}

}  // namespace attnd::cpu
