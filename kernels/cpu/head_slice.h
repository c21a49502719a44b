#ifndef ATTND_KERNELS_CPU_HEAD_SLICE_H_
#define ATTND_KERNELS_CPU_HEAD_SLICE_H_

// A problem cut into its heads, so that the reference algorithms, which know
// of no threads, run one head to a task.

#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace attnd::cpu {

// Sequence b's kv head `kv_head` and the q heads that share it (or just one of
// them), as a problem of its own over the same memory. Views the arguments,
// which must outlive it.
class HeadSlice {
 public:
  // q head `q_head` alone.
  HeadSlice(const ForwardArgs& args, int64_t b, int64_t q_head);
  // All q heads of `kv_head`, since their dK and dV are sums.
  HeadSlice(const BackwardArgs& args, int64_t b, int64_t kv_head);

  HeadSlice(const HeadSlice&) = delete;
  HeadSlice& operator=(const HeadSlice&) = delete;

  const ForwardArgs& forward() const { return forward_; }
  const BackwardArgs& backward() const { return backward_; }

 private:
  Problem Slice(const Problem& problem, int64_t b, int64_t q_head,
                int64_t q_heads, int64_t kv_head);

  std::vector<KvSegment> segments_;
  ForwardArgs forward_;
  BackwardArgs backward_;
};

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_HEAD_SLICE_H_
