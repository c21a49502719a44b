#include "kernels/cuda/launch/wanted.h"

#include <algorithm>
#include <limits>

namespace attnd::cuda {

bool HasOutput(const ForwardArgs& args) {
  const Problem& p = args.problem;
  return (args.o || args.lse) && p.batch > 0 && p.q_len > 0 && p.q_heads > 0;
}

bool HasOutput(const BackwardArgs& args) {
  const Problem& p = args.problem;
  if (p.batch == 0 || p.q_heads == 0) return false;
  return (args.dq && p.q_len > 0) ||
         std::any_of(p.kv.begin(), p.kv.end(), [](const KvSegment& s) {
           return (s.dk || s.dv) && s.len > 0;
         });
}

int64_t Saturate(double bytes) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return bytes < static_cast<double>(kMost) ? static_cast<int64_t>(bytes)
                                            : kMost;
}

}  // namespace attnd::cuda
