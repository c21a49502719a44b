#ifndef ATTND_KERNELS_GIVE_WAY_H_
#define ATTND_KERNELS_GIVE_WAY_H_

// How threads that compute for seconds let those that talk to clients, which
// need microseconds, go first.

#include "kernels/attention.h"

namespace attnd {

// The calling thread computes from now on: GiveWay is for it.
void BecomeComputeThread();

// To be called between two tiles. A compute thread lets whoever waits for its
// core go first, at most every 0.1 ms; another thread goes on.
void GiveWay();

// Between two tiles of a problem: gives way, and says whether to go on.
inline bool Proceed(const Problem& problem) {
  GiveWay();
  return problem.cancel == nullptr || !problem.cancel->cancelled();
}

}  // namespace attnd

#endif  // ATTND_KERNELS_GIVE_WAY_H_
