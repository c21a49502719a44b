#ifndef ATTND_KERNELS_CUDA_LAUNCH_WANTED_H_
#define ATTND_KERNELS_CUDA_LAUNCH_WANTED_H_

// Which problems of a group are to be computed at all, as fused/ and
// baselines/ both ask. Thread-safe.

#include <cstdint>

#include "kernels/attention.h"

namespace attnd::cuda {

// Whether there is a row, or a token of K and V, to compute.
bool HasOutput(const ForwardArgs& args);
bool HasOutput(const BackwardArgs& args);

// Whether whoever asked for the problem has given it up; false may become true
// at any time.
inline bool Cancelled(const Problem& p) {
  return p.cancel != nullptr && p.cancel->cancelled();
}

// Whether a problem is to be launched: it has an output, and is not cancelled.
template <class Args>
bool IsWanted(const Args& args) {
  return HasOutput(args) && !Cancelled(args.problem);
}

// Bytes of scratch that were added up in double, as those that grow as
// q_len x kv_len may be more than any integer holds: the largest one then.
int64_t Saturate(double bytes);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_WANTED_H_
