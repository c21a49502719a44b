#ifndef ATTND_KERNELS_CPU_CORE_SPREAD_H_
#define ATTND_KERNELS_CPU_CORE_SPREAD_H_

#include <atomic>
#include <vector>

namespace attnd::cpu {

// Keeps a pool's threads on cores of their own. The system may wake two of them
// on one core and leave them there for tens of milliseconds, though another
// core is idle. A thread that finds itself on the core of another moves to one
// that none of them is on; from there the system may move it as ever.
//
// Thread-safe as long as a worker is one thread's. Does nothing but on Linux.
class CoreSpread {
 public:
  explicit CoreSpread(int workers) : cores_(workers) {
    for (std::atomic<int>& core : cores_) core = kNone;
  }

  // The calling thread is `worker` and computes from now on; to be called again
  // now and then, some tens of nanoseconds.
  void Compute(int worker);
  // It waits from now on, and its core is free.
  void Rest(int worker) {
    cores_[worker].store(kNone, std::memory_order_relaxed);
  }

 private:
  static constexpr int kNone = -1;

  // Whether a worker before this one computes on the core. Only one of two that
  // meet may move.
  bool Taken(int core, int worker) const;
  void Move();

  std::vector<std::atomic<int>> cores_;  // by worker; kNone while it rests
};

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_CORE_SPREAD_H_
