#include "kernels/give_way.h"

#include <chrono>
#include <cstdint>

#ifdef __linux__
#include <linux/sched.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace attnd {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Clock::duration kTurn = std::chrono::microseconds(100);

// Properties of the thread, as its slice is that BecomeComputeThread sets: what
// runs a task knows no more than the problem, whichever thread it is on.
thread_local bool computes = false;
thread_local Clock::time_point turn_began;

}  // namespace

// A thread that has yielded comes back after what is left of its slice: with
// the usual 3 ms it would get next to nothing of a core that it shares with
// another process, with 0.2 ms it gets its half (since Linux 6.12; ignored
// before).
void BecomeComputeThread() {
  computes = true;
#ifdef __linux__
  const id_t self = static_cast<id_t>(syscall(SYS_gettid));
  // linux/sched/types.h, which older C libraries' <sched.h> contradicts.
  const struct {
    uint32_t size = 48, policy = SCHED_OTHER;
    uint64_t flags = SCHED_FLAG_KEEP_POLICY;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t runtime_ns = 200'000, deadline_ns = 0, period_ns = 0;
  } attributes = {.nice = getpriority(PRIO_PROCESS, self)};
  syscall(SYS_sched_setattr, self, &attributes, 0);
#endif
}

// Whoever wakes while a thread computes may have to wait until the next tick
// of the clock, up to 4 ms later, unless that thread yields. A lower priority
// makes that rarer, no more, and the system then keeps two such threads on one
// core for a while.
void GiveWay() {
  if (!computes) return;
  if (Clock::now() - turn_began < kTurn) return;
#ifdef __linux__
  sched_yield();
#endif
  turn_began = Clock::now();
}

}  // namespace attnd
